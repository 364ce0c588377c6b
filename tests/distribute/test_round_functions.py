"""The functions of a round: traced once each, and reports that say what happened."""

import numpy as np
import pytest
import tensorflow as tf

from slimdp_tf import methods
from slimdp_tf.distribute.roles import Role
from slimdp_tf.distribute.round_functions import RoundFunctions
from slimdp_tf.inspection import ABSENT, MERGED
from tests.distribute.one_process import Drill, make_variable

pytestmark = pytest.mark.slow

N = 12
MOVES = np.stack([np.ones(N), np.full(N, 3.0)])


def make_drill(method=None) -> Drill:
    return Drill(method or methods.plump(), [np.zeros(N)], 2, 2, MOVES)


class Bench:
    """Calls the functions of a drill's rounds one by one."""

    def __init__(self, drill: Drill):
        self.drill, self.cache = drill, drill.rounds.cache
        self.functions = RoundFunctions(self.cache, drill.rounds.servers.devices)
        self.trace = drill.step.trace()
        self.cache.send()

    def work(self, worker: int, pull: str | None, push: str | None, number: int = 0, steps: int = 1):
        function = self.functions.worker(self.drill.step, self.trace, pull, push)
        arguments = (self.drill._handles(worker), [], tf.constant(steps), tf.constant(number), tf.constant(worker))
        call = self.drill.rounds.workers.call(lambda _: self.functions.parse(function(*arguments)), [worker])
        return call[worker]

    def merge(self, number: int) -> list[int]:
        return self.functions.merge(False, False)(tf.constant(number, tf.int64)).numpy().tolist()


def test_a_report_says_what_crossed_and_what_was_done():
    bench = Bench(make_drill())
    report = bench.work(1, "everything", "chosen", steps=3)
    assert report.steps == 3
    np.testing.assert_array_equal(report.bytes, [[4 * N / 2, 0, 4 * N / 2, 0]] * 2)  # per block: pushed, pulled
    np.testing.assert_array_equal(report.matches, [0, 0, 0])
    assert report.explored == 0
    np.testing.assert_array_equal(report.sums, [3.0])
    np.testing.assert_array_equal(report.outputs[0], [3.0])
    assert report.seconds.shape == (3,) and (report.seconds >= 0).all()


def test_nothing_is_pulled_or_pushed_that_was_not_asked_for():
    bench = Bench(make_drill())
    bench.work(0, "everything", None)
    assert bench.merge(0)[:2] == [ABSENT, ABSENT]
    report = bench.work(0, None, "chosen", number=1)
    np.testing.assert_array_equal(report.bytes, [[4 * N / 2, 0, 0, 0]] * 2)
    assert bench.merge(1)[:2] == [MERGED, ABSENT]
    bench.cache.leave_behind()
    np.testing.assert_array_equal(bench.drill.values(), np.full(N, -2.0))  # both steps of worker 0


def test_a_worker_without_data_pushes_nothing():
    drill = make_drill()
    drill.batches[0] = 0
    bench = Bench(drill)
    report = bench.work(0, "everything", "chosen")
    assert (report.steps, report.bytes[:, :2].sum()) == (0, 0)
    assert bench.merge(0)[:2] == [ABSENT, ABSENT]


def test_keys_stand_apart_from_values():
    bench = Bench(make_drill(methods.slim(0.5, 0.25, q=4)))
    report = bench.work(0, "everything", "whole")
    explored = round(0.25 * N)
    assert report.bytes.sum(0).tolist() == [4 * N, 4 * explored + 48, 4 * N, 48 + 2 * 4 * 8]
    assert report.matches.tolist() == [0, 2, 0]  # it held nothing, which is older than anything
    assert report.explored == explored


def test_every_function_is_traced_once():
    drill = make_drill()
    bench = Bench(drill)
    one = bench.functions.worker(drill.step, bench.trace, "answer", "chosen")
    assert bench.functions.worker(drill.step, bench.trace, "answer", "chosen") is one
    assert bench.functions.worker(drill.step, bench.trace, "everything", "chosen") is not one
    assert bench.functions.merge(False, False) is bench.functions.merge(False, False)


@pytest.mark.parametrize("method", [methods.plump(), methods.slim(0.5, 0.25, q=4)], ids=lambda method: method.name)
def test_averages_are_shared_whole_beside_the_weights(method):
    """A float that training writes and that is no weight, such as BatchNormalization's: always plump."""
    drill = make_drill(method)
    mean = make_variable(np.zeros(3, np.float32), drill.rounds.cache, name="mean", trainable=False)

    def train(elements, arguments):
        mean.assign_add(tf.cast(elements[0], tf.float32) * [1.0, 2.0, 4.0])
        return drill.train(elements, arguments)

    step = drill.step.__class__(train, drill.step.element_specs, [], True)
    drill.rounds.prepare(step, [*drill.weights, drill.loss, mean], drill.weights, [])
    drill.step = step
    assert set(drill.rounds.cache.shared) == {Role.WEIGHT, Role.AVERAGE}
    drill.run(), drill.run()
    np.testing.assert_allclose(mean.numpy(), [1.0, 2.0, 4.0])  # twice the mean over workers 0 and 1
    assert len(drill.rounds.records[0].traffic.ps_bytes) == 2
    assert sum(drill.rounds.records[1].traffic.ps_bytes) == drill.rounds.records[1].traffic.exchange_bytes
