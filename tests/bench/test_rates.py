"""Rates are read as people write them, and refused in words."""

import pytest

from slimdp_tf.bench.rates import read_rate, read_rates


@pytest.mark.parametrize(
    ("text", "mbit_s"),
    [("100mbit", 100), ("1gbit", 1000), ("2.5Gbit", 2500), ("1mbit", 1), ("5000kbit", 5), (" .5gbit ", 500)],
)
def test_numbers_with_units(text, mbit_s):
    assert read_rate(text).mbit_s == pytest.approx(mbit_s)


def test_unshaped_has_no_rate():
    assert read_rate("unshaped").mbit_s is None


@pytest.mark.parametrize("text", ["0.5mbit", "999kbit", "0mbit", "-3mbit", "100", "fast", "500gbit", "mbit", "1e3mbit"])
def test_others_are_refused_with_what_is_allowed(text):
    with pytest.raises(ValueError, match=r"from 1mbit to 400gbit, as 100mbit.*Received: '.*'"):
        read_rate(text)


def test_lists():
    assert [rate.name for rate in read_rates(["100mbit", "", "unshaped"])] == ["100mbit", "unshaped"]
    with pytest.raises(ValueError, match="Received: none"):
        read_rates([])
    with pytest.raises(ValueError, match="Received twice: 0.1gbit"):
        read_rates(["100mbit", "0.1gbit"])


@pytest.mark.parametrize(
    ("text", "burst"), [("1mbit", 4096), ("100mbit", 62_500), ("1gbit", 65_536), ("10gbit", 625_000)]
)
def test_bursts_are_short_in_time_and_hold_packets(text, burst):
    assert read_rate(text).burst_bytes == burst
