"""Workers: one call at a time each, waits that end, and who is lost comes back."""

import dataclasses
import threading
import time
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

import slimdp_tf
from slimdp_tf import methods
from slimdp_tf.distribute import _tf
from slimdp_tf.distribute.calls import ClusterError
from slimdp_tf.distribute.local_variable import worker_here
from slimdp_tf.distribute.roles import Role
from slimdp_tf.distribute.workers import worker_devices
from tests.distribute.one_process import make_workers
from tests.distribute.test_causes import LACKS_ALL, LOST_CONTEXT, TARGET
from tests.distribute.test_exactly_once import Sum

GONE = tf.errors.UnavailableError(None, None, "connection reset\nand more")


def fail(error: BaseException):
    raise error


@pytest.fixture
def alive(monkeypatch):
    """What `_tf.is_alive` says, which tests may set; a worker that is lost is asked again at once."""
    state = {"alive": True}
    monkeypatch.setattr(_tf, "is_alive", lambda device: state["alive"])
    monkeypatch.setattr(_tf, "update_cluster", lambda missing: None)
    monkeypatch.setattr(_tf, "address_of", lambda device: device)
    monkeypatch.setattr(slimdp_tf.distribute.workers, "answers", lambda address: True)
    monkeypatch.setattr(slimdp_tf.distribute.workers.time, "sleep", lambda seconds: threading.Event().wait(0.01))
    yield state
    state["alive"] = True


# -- calls ------------------------------------------------------------------------------------------------------------


def test_calls_every_live_worker_where_it_stands():
    workers = make_workers(3)
    assert len(workers) == 3
    assert workers.call(lambda worker: (worker, worker_here())) == {0: (0, 0), 1: (1, 1), 2: (2, 2)}
    assert workers.call(lambda worker: worker, [2, 0]) == {0: 0, 2: 2}
    assert workers.call(lambda worker: worker, []) == {}
    assert worker_here() is None


def test_calls_workers_at_the_same_time():
    barrier = threading.Barrier(3)
    make_workers(3).call(lambda worker: barrier.wait(timeout=10))


def test_an_error_of_a_worker_that_lives_is_raised(alive):
    workers = make_workers(2)
    for error in (KeyError("x"), tf.errors.InvalidArgumentError(None, None, "wrong"), GONE):
        with pytest.raises(type(error)):
            workers.call(lambda worker, error=error: fail(error) if worker else worker)
    assert workers.live == {0, 1}


def test_furnishes_every_worker_now():
    workers, made = make_workers(2), []
    workers.furnish(lambda worker: made.append(worker))
    assert sorted(made) == [0, 1]


# -- who is lost ------------------------------------------------------------------------------------------------------


def test_a_worker_that_fails_is_lost_and_the_others_answer(alive):
    workers, made = make_workers(2), []
    workers.furnish(made.append)
    made.clear()
    alive["alive"] = False
    assert workers.call(lambda worker: fail(GONE) if worker else "here") == {0: "here"}
    assert workers.live == {0}
    assert workers.call(lambda worker: worker) == {0: 0}
    assert workers.take_returned() == []
    alive["alive"] = True
    returned = []
    for _ in range(500):
        returned += workers.take_returned()
        if returned:
            break
        threading.Event().wait(0.01)
    assert (returned, made, workers.live) == ([1], [1], {0, 1})
    assert workers.call(lambda worker: worker) == {0: 0, 1: 1}


def test_a_worker_that_does_not_answer_in_time_is_lost(alive):
    workers, gate = make_workers(2, deadline_s=0.2), threading.Event()
    alive["alive"] = False
    started = time.monotonic()
    assert workers.call(lambda worker: gate.wait() if worker else "here") == {0: "here"}
    assert 0.2 <= time.monotonic() - started < 5.0
    assert (workers.live, workers.missed) == ({0}, 1)
    gate.set()


def test_what_a_worker_brings_that_was_given_up_is_late(alive):
    workers, gate, late = make_workers(2, deadline_s=0.2), threading.Event(), []
    alive["alive"] = False
    workers.call(lambda worker: gate.wait() if worker else "here", late=late.append)
    assert late == []
    gate.set()
    for _ in range(500):
        if late:
            break
        threading.Event().wait(0.01)
    assert late == [True]


def test_nobody_is_late_while_a_server_is_silent(alive, monkeypatch):
    monkeypatch.setattr(slimdp_tf.distribute.workers, "WATCH_S", 0.1)
    workers, gate, looks = make_workers(2, deadline_s=0.2), threading.Event(), []

    def watch() -> float:
        looks.append(time.monotonic())
        if len(looks) == 3:
            gate.set()
        return looks[-1] - looks[0] + 0.1

    assert workers.call(lambda worker: gate.wait(), watch=watch) == {0: True, 1: True}
    assert workers.live == {0, 1} and len(looks) == 3


def test_after_a_server_was_silent_there_is_as_long_again_to_answer(alive, monkeypatch):
    monkeypatch.setattr(slimdp_tf.distribute.workers, "WATCH_S", 0.1)
    workers, looks = make_workers(2, deadline_s=0.2), []

    def watch() -> float:
        looks.append(time.monotonic())
        return 1.0 if len(looks) == 1 else 0.0  # silent for 1 s, then there again

    assert workers.call(lambda worker: threading.Event().wait(0.8), watch=watch) == {0: False, 1: False}
    assert workers.live == {0, 1}


def test_a_worker_that_lost_the_connection_to_a_server_which_is_there_comes_back(alive):
    workers, error = make_workers(2), tf.errors.UnavailableError(None, None, "reset\n" + TARGET.format("ps", 1))
    workers.is_closed = True  # nobody awaits it
    with pytest.raises(tf.errors.UnavailableError):
        workers.judge(1, error)
    workers.are_servers_there = lambda: True
    with pytest.raises(tf.errors.InvalidArgumentError):
        workers.judge(1, tf.errors.InvalidArgumentError(None, None, "its own fault"))
    assert workers.live == {0, 1}
    workers.judge(1, error)
    assert workers.live == {0}


def test_a_connection_that_breaks_again_and_again_is_an_error(alive, monkeypatch):
    workers, error = make_workers(2), tf.errors.CancelledError(None, None, "again")
    workers.is_closed, workers.are_servers_there = True, lambda: True
    now = [0.0]
    clock = types.SimpleNamespace(monotonic=lambda: now[0], sleep=lambda seconds: None)
    monkeypatch.setattr(slimdp_tf.distribute.workers, "time", clock)

    def break_for(times: int, every_s: float) -> None:
        for _ in range(times):
            now[0] += every_s
            workers.judge(1, error)
            assert workers.live == {0}
            workers.live.add(1)

    break_for(30, every_s=7.0)  # 10 of them within 63 s
    now[0] += 1.0  # and within 57 s
    with pytest.raises(tf.errors.CancelledError, match="again"):
        workers.judge(1, error)


def test_judging_a_worker_that_does_not_answer_ends(alive, monkeypatch):
    workers, gate = make_workers(2), threading.Event()
    monkeypatch.setattr(slimdp_tf.distribute.workers, "BUSY_S", 0.2)
    monkeypatch.setattr(_tf, "is_alive", lambda device: gate.wait())
    assert workers.call(lambda worker: fail(GONE) if worker else "here") == {0: "here"}
    assert workers.live == {0}
    gate.set()


@pytest.mark.parametrize(("silent", "missing"), [(set(), [frozenset()]), ({"w1"}, [frozenset({"w1"})]), ({"p0"}, [])])
def test_connects_again_unless_another_task_is_silent(alive, monkeypatch, silent, missing):
    workers, connected = make_workers(2), []
    workers.live = {0}
    monkeypatch.setattr(_tf, "addresses", lambda: ["w0", "w1", "p0"])
    monkeypatch.setattr(_tf, "update_cluster", connected.append)
    monkeypatch.setattr(slimdp_tf.distribute.workers, "answers", lambda address: address not in silent)
    workers._connect_again(["w0", "w1"])
    assert connected == missing


def test_what_is_forgotten_is_not_furnished_again(alive):
    workers, made = make_workers(2), []
    workers.furnish(made.append)
    workers.forget(made.append)
    workers.forget(made.append)  # twice is no error
    made.clear()
    alive["alive"] = False
    workers.call(lambda worker: fail(GONE) if worker else None)
    alive["alive"] = True
    for _ in range(500):
        if workers.take_returned():
            break
        threading.Event().wait(0.01)
    assert (workers.live, made) == ({0, 1}, [])


def test_when_no_worker_is_left_the_wait_ends_and_names_them(alive):
    workers = make_workers(2, cluster_deadline_s=0.3)
    alive["alive"] = False
    message = "(?s)none came back within 0.3 s. worker 0: connection reset; worker 1: connection reset$"
    with pytest.raises(ClusterError, match=message):
        workers.call(lambda worker: fail(GONE))


def test_a_closed_cluster_calls_nobody():
    workers = make_workers(2)
    workers.is_closed = True
    with pytest.raises(ClusterError, match="has been stopped"):
        workers.call(lambda worker: worker)


# -- their devices ----------------------------------------------------------------------------------------------------


class Device:
    def __init__(self, name: str):
        self.name = name


def test_a_worker_trains_on_its_first_gpu_and_says_so(monkeypatch, caplog):
    prefix = "/job:worker/replica:0/task"
    names = [
        f"{prefix}:0/device:GPU:1",
        f"{prefix}:0/device:GPU:0",
        f"{prefix}:2/device:GPU:0",
        "/job:ps/task:1/device:GPU:0",
    ]
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: [Device(name) for name in names])
    monkeypatch.setattr(tf.get_logger(), "propagate", True)
    devices = worker_devices(3)
    assert devices == [f"{prefix}:0/device:GPU:0", f"{prefix}:1/device:CPU:0", f"{prefix}:2/device:GPU:0"]
    assert "worker 0 has 2 GPUs and uses the first" in caplog.text
    assert "worker 2" not in caplog.text


# -- real processes ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def own():
    """A cluster that these tests may harm."""
    with slimdp_tf.local_cluster(workers=3, ps=2) as made:
        yield made


class Disturb(keras.callbacks.Callback):
    """Calls functions before the rounds named."""

    def __init__(self, strategy, actions: dict[int, list]):
        super().__init__()
        self.strategy, self.actions = strategy, actions

    def on_train_batch_end(self, batch, logs=None) -> None:
        for action in self.actions.get(len(self.strategy.records), []):
            action()


def _await_return(strategy) -> None:
    """Waits until a worker that was lost answers: it takes part in the next round."""
    give_up = time.monotonic() + 60
    while not strategy.rounds.workers.has_returned():
        if time.monotonic() > give_up:
            raise TimeoutError("no worker came back")
        time.sleep(0.05)


def _fit(strategy, actions: dict[int, list], rounds: int = 14) -> keras.Model:
    """Trains a small model; the training makes it better whoever takes part."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0.5, 1.0, (rounds * strategy.workers * 4, 3)).astype("float32")
    y = x @ np.array([[1.0], [2.0], [3.0]], "float32")
    with strategy.scope():
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.02), "mse")
    disturb = Disturb(strategy, actions)
    history = model.fit(x, y, batch_size=4, shuffle=False, verbose=0, callbacks=[disturb])
    assert np.isfinite(history.history["loss"]).all()
    assert model.evaluate(x, y, verbose=0) < 2.0
    assert [record.refused for record in strategy.records] == [0] * rounds
    return model


def _took_part(strategy) -> list[int]:
    return [record.workers for record in strategy.records]


@pytest.mark.cluster
@pytest.mark.parametrize("method", [methods.plump(), methods.slim(0.6, 0.3, q=4)], ids=lambda method: method.name)
def test_a_worker_killed_in_mid_training_comes_back_by_pulling_everything(own, method):
    strategy = slimdp_tf.SlimDPStrategy(own.part(2, 2), method, seed=1)
    actions = {
        3: [lambda: own.kill("worker", 1)],
        6: [lambda: own.restart("worker", 1), lambda: _await_return(strategy)],
    }
    model = _fit(strategy, actions)
    assert _took_part(strategy) == [2] * 3 + [1] * 3 + [2] * 8
    alone, back = (strategy.records[number].traffic.pull_bytes for number in (5, 6))
    assert back - alone == 4 * model.count_params()  # everything, for the one that came back
    misses = [record.cache_misses for record in strategy.records]
    if method.agreement.period:  # chosen after rounds 0, 3, 7, 11; worker 1 has no keys when it comes back
        assert misses[1:] == [4, 0, 0, 2, 0, 2, 0, 4, 0, 0, 0, 4, 0]


@pytest.mark.cluster
def test_a_worker_started_anew_before_anyone_noticed_comes_back(own):
    strategy = slimdp_tf.SlimDPStrategy(own.part(2, 2), methods.plump())
    _fit(strategy, {3: [lambda: own.restart("worker", 1)], 6: [lambda: _await_return(strategy)]})
    assert _took_part(strategy)[3] == 1  # what it had held was gone
    assert _took_part(strategy)[6:] == [2] * 8


@pytest.mark.cluster
def test_a_worker_comes_back_while_another_is_still_gone(own):
    strategy = slimdp_tf.SlimDPStrategy(own, methods.plump())
    actions = {
        3: [lambda: own.kill("worker", 0), lambda: own.kill("worker", 2)],
        5: [lambda: own.restart("worker", 0), lambda: _await_return(strategy)],
        8: [lambda: own.restart("worker", 2), lambda: _await_return(strategy)],
    }
    _fit(strategy, actions)
    assert _took_part(strategy) == [3] * 3 + [1] * 2 + [2] * 3 + [3] * 6


@pytest.mark.cluster
def test_a_worker_that_hangs_is_left_out_after_its_deadline_and_comes_back(own):
    strategy = slimdp_tf.SlimDPStrategy(own.part(2, 2), methods.plump(), worker_deadline_s=6.0)
    actions = {
        3: [lambda: own.suspend("worker", 0)],
        5: [lambda: own.resume("worker", 0), lambda: _await_return(strategy)],
    }
    try:
        _fit(strategy, actions)
    finally:
        own.resume("worker", 0)
    assert _took_part(strategy) == [2] * 3 + [1] * 2 + [2] * 9
    assert [record.missed for record in strategy.records] == [0] * 3 + [1] + [0] * 10
    assert strategy.records[3].round_s >= 6.0
    assert strategy.records[4].round_s < 5.0  # nobody waits for it again


def _rounds_with_a_stop(own, strategy) -> np.ndarray:
    """Rounds in which every step adds 1 to its worker's entry; worker 1 is stopped for 10 s or more: the model."""
    rounds, own_entry = strategy.rounds, np.arange(2)
    with strategy.scope():
        weight = tf.Variable(np.zeros(2, np.float32))
    data = strategy.distribute_datasets_from_function(
        lambda context: tf.data.Dataset.from_tensors(context.input_pipeline_id).repeat()
    )
    batches = iter(data)

    def step(worker):
        weight.assign_add(tf.cast(tf.equal(own_entry, tf.cast(worker, tf.int64)), tf.float32))

    def run(count: int) -> None:
        for _ in range(count):
            strategy.run(step, (next(batches),))

    run(3)
    own.suspend("worker", 1)
    awake_at = time.monotonic() + 10.0
    run(4)  # the others do not wait for it to wake
    time.sleep(max(0.0, awake_at - time.monotonic()))
    own.resume("worker", 1)
    tag = rounds.cache.shared[Role.WEIGHT].blocks[0].tags[1]
    give_up = time.monotonic() + 60
    while tag.numpy() != 3 or not rounds.ledger.uncounted:
        assert time.monotonic() < give_up, "what it pushed late did not come"
        time.sleep(0.05)
    _await_return(strategy)
    run(3)
    return weight.numpy()


@pytest.mark.cluster
@pytest.mark.parametrize("pacing", ["sync", "async"])
def test_what_a_worker_that_was_stopped_pushes_late_is_refused_in_step_and_merged_without_a_barrier(own, pacing):
    method = dataclasses.replace(methods.plump(pacing=pacing), merge=Sum())
    strategy = slimdp_tf.SlimDPStrategy(own.part(2, 2), method, worker_deadline_s=6.0)
    try:
        model = _rounds_with_a_stop(own, strategy)
    finally:
        own.resume("worker", 1)
    assert _took_part(strategy) == [2] * 3 + [1] * 4 + [2] * 3
    is_late = pacing == "async"
    assert model.tolist() == [10.0, 6.0 + is_late]
    assert [record.missed for record in strategy.records] == [0] * 3 + [not is_late] + [0] * 6
    assert [record.late for record in strategy.records] == [0] * 7 + [is_late] + [0] * 2
    assert strategy.traffic.push_bytes == 2 * 4 * (10 + 6 + 1)  # the late push crossed, too
    assert [record.refused for record in strategy.records] == [0] * 10


@pytest.mark.cluster
def test_when_every_worker_is_killed_the_error_names_them(own):
    strategy = slimdp_tf.SlimDPStrategy(own.part(2, 2), methods.plump(), cluster_deadline_s=2.0)
    actions = {3: [lambda: own.kill("worker", 0), lambda: own.kill("worker", 1)]}
    try:
        with pytest.raises(ClusterError, match="none came back within 2 s. worker 0 at .*; worker 1 at "):
            _fit(strategy, actions)
    finally:
        own.restart("worker", 0), own.restart("worker", 1)


@pytest.mark.cluster
@pytest.mark.parametrize("verb", ["kill", "suspend"])
def test_a_server_that_is_gone_or_hangs_is_named(verb):
    with slimdp_tf.local_cluster(workers=1, ps=2) as made:
        strategy = slimdp_tf.SlimDPStrategy(made, methods.plump(), worker_deadline_s=4.0, cluster_deadline_s=4.0)
        started = time.monotonic()
        with pytest.raises(ClusterError, match="ps 1 at .*, in round 3"):
            _fit(strategy, {3: [lambda: getattr(made, verb)("ps", 1)]})
        assert time.monotonic() - started < 60.0


def test_a_worker_that_connected_again_before_it_was_asked_is_lost_by_what_the_error_names(alive):
    workers = make_workers(2)
    workers.devices = [f"/job:worker/replica:0/task:{worker}/device:CPU:0" for worker in (1, 11)]
    workers.is_closed = True  # nobody awaits it
    through = "\n" + TARGET.format("worker", 11)
    lost_server = tf.errors.AbortedError(None, None, LOST_CONTEXT + TARGET.format("ps", 1) + through)
    with pytest.raises(tf.errors.AbortedError):
        workers.judge(1, lost_server)
    with pytest.raises(tf.errors.AbortedError):  # task 11 is not task 1
        workers.judge(0, tf.errors.AbortedError(None, None, LOST_CONTEXT + through))
    assert workers.live == {0, 1}
    workers.judge(1, tf.errors.AbortedError(None, None, LOST_CONTEXT + through))
    assert workers.live == {0}


def test_a_worker_that_was_started_anew_unnoticed_is_lost_though_it_answers():
    workers = make_workers(2)
    workers.is_closed = True  # nobody awaits it
    workers.judge(1, tf.errors.InvalidArgumentError(None, None, LACKS_ALL))
    assert workers.live == {0}
    with pytest.raises(tf.errors.InvalidArgumentError, match="its own fault"):
        workers.judge(0, tf.errors.InvalidArgumentError(None, None, "its own fault"))
