"""Outcomes of soaks made by hand."""

from slimdp_tf.bench.soak.faults import Fault
from slimdp_tf.bench.soak.run import Outcome, Tried
from slimdp_tf.bench.soak.vitals import Sample, measure_growth


def make_outcome(rate=0.0, complaints=()) -> Outcome:
    """Two kills of workers and a stop of a ps, of which the chief did not recover; memory grows by `rate` MB/s."""
    samples = [
        Sample(float(at), task, 0, float(at), 500.0 + rate * at, 20, 30)
        for at in range(0, 100, 5)
        for task in ("chief", "ps0")
    ]
    tried = [
        Tried(Fault("kill", "worker1", 5.0, 1.0), 10.0, 11.0, 4.0, 3),
        Tried(Fault("kill", "worker2", 5.0, 1.0), 30.0, 31.0, 8.0, 5),
        Tried(Fault("stop", "ps0", 5.0, 2.0), 50.0, 52.0, None, 0),
    ]
    epochs = [{"loss": 2.0, "is_finite": True, "lost": 0}, {"loss": 1.0, "is_finite": True, "lost": 7}]
    return Outcome(tried, samples, measure_growth(samples, 20.0), 123, epochs, list(complaints))
