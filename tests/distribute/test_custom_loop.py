"""Steps of custom loops, on a real cluster (`tests/training/test_keras_bridge_custom_loops.py` has Keras's models)."""

import numpy as np
import pytest
import tensorflow as tf

from slimdp_tf import methods
from tests.cluster import strategy as make_strategy


@pytest.fixture(scope="module")
def trained():
    """(strategy, records heard) after 3 rounds of a step that adds what the worker's data says."""
    strategy, heard = make_strategy(methods.plump(p=2), workers=2, ps=3), []
    strategy.on_round(heard.append)
    with strategy.scope():
        weight = tf.Variable(np.zeros(6, np.float32))
    iterator = iter(strategy.distribute_arrays(np.arange(1.0, 13.0, dtype=np.float32), batch_size=1))

    def step(batch):
        weight.assign_sub(tf.fill([6], batch[0]))
        return batch[0]

    results = [strategy.run(step, (next(iterator),)) for _ in range(6)]
    return strategy, heard, results, weight


@pytest.mark.cluster
def test_trains_on_every_workers_own_data(trained):
    _, _, _, weight = trained
    np.testing.assert_allclose(weight, -np.full(6, sum(range(1, 13)) / 2))


@pytest.mark.cluster
def test_gives_what_the_step_returned_per_worker(trained):
    strategy, _, results, _ = trained
    assert [t.numpy() for t in strategy.experimental_local_results(results[0])] == [1, 2]
    assert strategy.reduce("SUM", results[1], axis=None).numpy() == 3 + 4
    assert strategy.reduce(tf.distribute.ReduceOp.MEAN, results[1], axis=None).numpy() == 3.5
    assert strategy.reduce("MEAN", tf.constant([1.0, 3.0]), axis=0).numpy() == 2.0


@pytest.mark.cluster
def test_run_is_not_for_the_inside_of_a_function(trained):
    with pytest.raises(RuntimeError, match="not inside a tf.function"):
        tf.function(lambda: trained[0].run(lambda: 1))()
