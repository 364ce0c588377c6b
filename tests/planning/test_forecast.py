"""Rounds and break-evens worked by hand."""

import dataclasses
import math

import pytest

from slimdp_tf.planning.forecast import EFFICIENCY, Site, advise, find_break_even, forecast, format_rate
from slimdp_tf.planning.load import Load

FAST = Site(workers=4, ps=2, step_s=0.01, rate=100e6 / EFFICIENCY, chief_s=0.001)  # 100 Mbit/s of tensors


def test_a_round_by_hand():
    found = forecast(Load(1e6, 0.5e6), 4, FAST, 0.02)
    assert found.compute_s == pytest.approx(0.04)
    assert found.worker_link_s == pytest.approx(0.12)  # 12 Mbit
    assert found.ps_link_s == pytest.approx(0.24)  # two workers' each
    assert found.chief_s == pytest.approx(0.004)
    assert found.round_s == pytest.approx(0.04 + 0.24 + 0.02 + 0.004)
    assert found.step_s == pytest.approx(found.round_s / 4)
    assert (found.bound, found.worker_bytes, found.ps_bytes) == ("ps link", 1.5e6, 3e6)


@pytest.mark.parametrize(
    ("load", "step_s", "exchange_s", "bound"),
    [(Load(1, 1), 0.1, 0.0, "compute"), (Load(1, 1), 0.0, 0.1, "exchange"), (Load(1e6, 1e6), 0.0, 0.1, "ps link")],
)
def test_names_what_holds(load, step_s, exchange_s, bound):
    assert forecast(load, 1, Site(4, 2, step_s, 1e8), exchange_s).bound == bound


def test_with_a_server_per_worker_their_links_hold_together():
    found = forecast(Load(1e6, 1e6), 1, Site(2, 2, 0.0, 1e8), 0.0)
    assert found.worker_link_s == found.ps_link_s == found.link_s


def test_on_one_machine_the_shorter_of_links_and_work_hides_but_for_a_workers_share():
    here = dataclasses.replace(FAST, is_one_machine=True)
    assert forecast(Load(1e6, 0.5e6), 4, here, 0.02).round_s == pytest.approx(0.24 + 0.06 / 4 + 0.004)
    assert forecast(Load(1e6, 0.5e6), 4, here, 0.30).round_s == pytest.approx(0.34 + 0.24 / 4 + 0.004)
    alone = Site(1, 1, 0.01, FAST.rate, is_one_machine=True)
    assert forecast(Load(1e6, 0.5e6), 4, alone, 0.02).round_s == pytest.approx(0.12 + 0.06)


def test_break_even_by_hand():
    """Dense 2 MB and 10 ms, the other 1 MB and 18 ms: with 2 workers per server 16 Mbit are saved for 8 ms."""

    def gain_at(rate: float) -> float:
        site = Site(4, 2, 0.0, rate)
        dense, other = forecast(Load(1e6, 1e6), 1, site, 0.010), forecast(Load(0.5e6, 0.5e6), 1, site, 0.018)
        return dense.round_s / other.round_s

    limit = find_break_even(gain_at)
    assert limit == pytest.approx(16e6 / 0.008 / EFFICIENCY, rel=2e-3)
    assert gain_at(0.9 * limit) > 1 > gain_at(1.1 * limit)


def test_a_method_may_be_faster_at_every_rate_or_at_none():
    assert find_break_even(lambda rate: 1.5) == math.inf
    assert find_break_even(lambda rate: 1.0) == 0.0


def test_advice_in_one_sentence():
    dense = forecast(Load(1e6, 1e6), 1, FAST, 0.01)
    small = forecast(Load(1e5, 1e5), 1, FAST, 0.01)
    assert advise("slim", small, dense, FAST.rate, math.inf) == (
        "slim: 6.1 x as fast as dense; gains at any rate; ps link holds it up."
    )
    assert advise("slim", small, dense, 3e9, 2.1e9) == "slim: no gain above 2.1 Gbit/s: train dense."
    assert advise("slim", small, dense, FAST.rate, 0.0) == "slim: no gain at any rate: train dense."
    busy = Site(4, 2, 10.0, 1e8)
    both = [forecast(Load(size, size), 1, busy, 0.01) for size in (1e5, 1e6)]
    said = advise("slim", *both, busy.rate, 2e8)
    assert said == "slim: 1.03 x as fast, hardly worth it: compute holds it up (gains up to 200 Mbit/s)."


def test_rates_as_people_write_them():
    assert format_rate(2.1e9) == "2.1 Gbit/s" and format_rate(5e7) == "50 Mbit/s"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"workers": 0}, "workers must be an integer of at least 1. Received: 0"),
        ({"ps": 1.5}, "ps must be an integer"),
        ({"rate": 5e5}, "at least 1 Mbit/s"),
        ({"rate": math.nan}, "at least 1 Mbit/s"),
        ({"step_s": -1.0}, "step_s must be at least 0"),
        ({"chief_s": math.inf}, "chief_s must be at least 0"),
    ],
)
def test_refuses(change, message):
    with pytest.raises(ValueError, match=message):
        Site(**{"workers": 4, "ps": 2, "step_s": 0.01, "rate": 1e8, **change})
