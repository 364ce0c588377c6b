"""How the chief's copies and the owners' are kept in step."""

import numpy as np
import pytest
import tensorflow as tf

from slimdp_tf import methods
from slimdp_tf.distribute.roles import Role
from slimdp_tf.distribute.step import Step
from tests.distribute.one_process import Drill, NoCache, make_variable

pytestmark = pytest.mark.slow

FIRST = tf.VariableAggregation.ONLY_FIRST_REPLICA


# -- owners -> chief, chief -> owners ---------------------------------------------------------------------------------


class Bench:
    """A drill of 3 workers whose step also writes a variable of every role; `copies` are the workers' values."""

    def __init__(self, workers: int = 3):
        self.drill = Drill(methods.plump(), [np.zeros(4)], workers, 1, np.ones((workers, 4)))
        cache = self.drill.rounds.cache
        self.metric = self.drill.loss
        self.count = make_variable(tf.constant(0, tf.int64), cache, name="count", aggregation=FIRST, trainable=False)
        self.slot = make_variable(np.zeros(2, np.float32), cache, name="slot", is_slot=True, trainable=False)
        self.state = make_variable(tf.constant([7, 0], tf.int64), cache, name="state", trainable=False)
        self.rate = make_variable(0.5, cache, name="rate", trainable=False)
        self.others = [self.metric, self.count, self.slot, self.state, self.rate]
        step = Step(self.train, [tf.TensorSpec([], tf.int64)], [], True)
        self.drill.rounds.prepare(step, [*self.drill.weights, *self.others], self.drill.weights, [])
        self.drill.step, self.cache = step, cache

    def train(self, elements, arguments):
        """Worker k adds 1 to the metric and the count, (k + 1) * rate to its slot, 1 to its state's counter."""
        self.count.assign_add(1)
        self.slot.assign_add(tf.fill([2], tf.cast(elements[0] + 1, tf.float32) * self.rate))
        self.state.assign_add(tf.constant([0, 1], tf.int64))
        return self.drill.train(elements, arguments)

    def copies(self, variable) -> list:
        return [copy.numpy().tolist() for copy in variable.copies]


@pytest.fixture(scope="module")
def trained():
    """After two rounds."""
    bench = Bench()
    bench.drill.run(), bench.drill.run()
    return bench


def test_knows_the_roles(trained):
    roles = [trained.cache.roles[id(v)] for v in trained.others]
    assert roles == [Role.SUM, Role.FIRST, Role.OWN, Role.OWN, Role.FIXED]
    assert trained.cache.of_role(Role.WEIGHT) == trained.drill.weights
    assert trained.cache.of_role(Role.SUM, Role.FIXED) == [trained.metric, trained.rate]


def test_the_chief_reads_the_global_values(trained):
    assert trained.metric.numpy() == 2 * 3  # the sum over workers
    assert trained.count.numpy() == 2  # one worker's
    np.testing.assert_allclose(trained.slot, [2.0, 2.0])  # the mean of 1, 2 and 3
    np.testing.assert_array_equal(trained.state, trained.copies(trained.state)[0])  # no float: the first worker's
    assert trained.rate.numpy() == 0.5
    np.testing.assert_allclose(trained.drill.values(), -2.0 * np.ones(4))


def test_random_states_differ_by_worker(trained):
    states = trained.copies(trained.state)
    assert len({seed for seed, _ in states}) == 3
    assert [counter for _, counter in states] == [2, 2, 2]


def test_assignments_reach_every_worker_as_their_role_asks():
    bench = Bench()
    bench.drill.run()
    bench.metric.assign(10.0)
    bench.count.assign(5)
    bench.slot.assign([8.0, 9.0])
    bench.state.assign([7, 100])
    bench.rate.assign(0.25)
    assert not bench.cache.send()  # no weight was assigned: nobody has to pull
    assert bench.copies(bench.metric) == [10, 0, 0]
    assert bench.copies(bench.count) == [5, 5, 5]
    assert bench.copies(bench.slot) == [[8, 9]] * 3
    assert [counter for _, counter in bench.copies(bench.state)] == [100] * 3
    assert len({seed for seed, _ in bench.copies(bench.state)}) == 3
    assert bench.copies(bench.rate) == [0.25] * 3
    bench.drill.run()
    assert (bench.metric.numpy(), bench.count.numpy()) == (13, 6)
    assert not any(v.is_dirty for v in bench.cache.variables)


def test_zeros_and_values_are_both_sent():
    bench = Bench()
    bench.drill.run()
    bench.slot.assign([0.0, 0.0])
    bench.count.assign(0)
    bench.rate.assign(2.0)
    before = bench.cache.chief_bytes
    bench.cache.send()
    assert bench.copies(bench.slot) == [[0, 0]] * 3
    assert bench.copies(bench.count) == [0] * 3
    assert bench.copies(bench.rate) == [2] * 3
    assert bench.cache.chief_bytes - before == 3 * 4  # zeros need no bytes


def test_an_assigned_weight_makes_workers_pull():
    bench = Bench()
    bench.drill.run()
    bench.drill.weights[0].assign(np.full(4, 5.0))
    assert bench.cache.send()
    assert not bench.cache.send()


def test_what_is_read_is_counted():
    bench = Bench()
    bench.drill.run()
    for read, nbytes in ((bench.drill.weights[0], 4 * 4), (bench.count, 8), (bench.slot, 3 * 2 * 4 + 2 * 8)):
        before = bench.cache.chief_bytes
        read.numpy(), read.numpy()
        assert bench.cache.chief_bytes - before == nbytes  # the second time it is there already


# -- workers that are lost --------------------------------------------------------------------------------------------


def lose(bench: Bench, *workers: int) -> None:
    bench.drill.rounds.workers.live -= set(workers)


def bring_back(bench: Bench, *workers: int) -> None:
    """As new processes: their variables hold nothing."""
    for worker in workers:
        bench.drill.rounds.workers._returned.put(worker)


def test_the_chief_reads_from_those_that_are_left():
    bench = Bench()
    bench.drill.run()
    lose(bench, 0)
    assert bench.count.numpy() == 1
    np.testing.assert_allclose(bench.slot, [1.25, 1.25])  # the mean of workers 1 and 2


@pytest.mark.parametrize("worker", [0, 2])
def test_a_worker_that_comes_back_gets_what_the_others_hold(worker):
    bench = Bench()
    bench.drill.run()
    lose(bench, worker)
    bench.drill.run()
    assert bench.metric.numpy() == 4  # the lost worker's share is lost
    bring_back(bench, worker)
    reports = bench.drill.run()
    assert [report.steps for report in reports] == [1, 1, 1]
    assert bench.copies(bench.count) == [3, 3, 3]
    assert bench.metric.numpy() == 4 + 3  # nothing is counted twice
    rest = [1.0 * (k + 1) for k in range(3) if k != worker]  # after two rounds
    np.testing.assert_allclose(bench.copies(bench.slot)[worker], np.mean(rest) + 0.5 * (worker + 1))
    assert len({seed for seed, _ in bench.copies(bench.state)}) == 3
    np.testing.assert_allclose(bench.drill.values(), -3.0 * np.ones(4))


def test_when_all_were_lost_training_goes_on_from_what_the_chief_saw_last():
    bench = Bench()
    bench.drill.run()
    assert (bench.count.numpy(), bench.metric.numpy()) == (1, 3)
    bench.drill.run()  # of which the chief has read the metric only
    lose(bench, 0, 1, 2)
    bring_back(bench, 1, 2)
    bench.drill.run()
    assert bench.metric.numpy() == 6 + 2
    assert bench.count.numpy() == 1 + 1
    np.testing.assert_allclose(bench.drill.values(), -3.0 * np.ones(4))


def test_a_variable_that_is_fresh_is_not_fetched():
    with pytest.raises(RuntimeError, match="was fetched"):
        variable = make_variable(1.0, NoCache())
        assert variable.numpy() == 1.0
        variable.is_stale = True
        variable.numpy()
