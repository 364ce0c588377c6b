"""Raw TCP from one host to another."""

import pytest

from slimdp_tf.bench import probe
from slimdp_tf.bench.loopback import Loopback
from slimdp_tf.bench.rates import read_rate


def test_measures_the_loopback(monkeypatch):
    monkeypatch.setattr(probe, "_UNSHAPED_BYTES", 20_000_000)
    with Loopback(["a", "b"], read_rate("unshaped")) as network:
        assert 10 < probe.measure_mbit_s(network, "a", "b") < 1e6


def test_a_link_that_does_not_work_is_named():
    class Broken(Loopback):
        def start(self, host, command, environment=None, **popen):
            return super().start(host, ["false"], environment, **popen)

    with Broken(["a", "b"], read_rate("unshaped")) as network, pytest.raises(OSError, match="from a to b at 127.0.0.1"):
        probe.measure_mbit_s(network, "a", "b")
