"""Costs of rounds, found on a small cluster."""

import pytest

from slimdp_tf import local_cluster, methods
from slimdp_tf.cli.costs import measure
from slimdp_tf.cli.plan import make_rows


@pytest.mark.cluster
def test_every_method_is_fitted_and_the_link_is_timed():
    chosen = [methods.plump(p=2), methods.slim(0.2, 0.1)]
    with local_cluster(2, 1) as cluster:
        costs = measure(cluster, chosen, lambda: make_rows(64_000), 64_000, batch=2, rounds=2)
    assert set(costs.step_s) == set(costs.exchange_s) == set(chosen)
    assert all(0 < seconds < 60 for found in (costs.step_s, costs.exchange_s) for seconds in found.values())
    assert costs.rate > 1e6
