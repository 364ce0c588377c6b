"""Every push counts once or not at all, whatever is killed while it travels.

Each local step of worker k adds exactly 1 to the entries that belong to it, and the servers add up what they are
sent: an entry of the servers' model is the number of steps of its worker that were merged. Workers are killed at
random, 4 times or SLIMDP_KILLS times, and started anew.
"""

import collections
import dataclasses
import os
import random
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

import slimdp_tf
from slimdp_tf import methods
from slimdp_tf.inspection import MERGED
from slimdp_tf.method import Method

KILLS = int(os.environ.get("SLIMDP_KILLS", "4"))
ROUNDS = max(40, 200 * KILLS // 30)
WORKERS, ENTRIES, PERIOD = 4, 64, 8


@dataclasses.dataclass(frozen=True)
class Sum:
    """w <- w - the sum of all updates: whole numbers stay whole."""

    def init(self, value):
        return {}

    def merge(self, state, value, incoming, notes):
        return list(incoming), {}


PLUMP = dataclasses.replace(methods.plump(), merge=Sum())
SLIM = dataclasses.replace(methods.slim(0.5, 0.25, q=PERIOD, memory="carry"), merge=Sum())


class Killer(threading.Thread):
    """Kills workers 1, 2, ... at random moments, one after another, and starts each anew a little later."""

    def __init__(self, cluster, strategy, seed: int):
        super().__init__(daemon=True)
        self.cluster, self.strategy, self.random = cluster, strategy, random.Random(seed)
        self.error = None

    def run(self) -> None:
        try:
            for _ in range(KILLS):
                time.sleep(self.random.uniform(0.05, 0.4))
                worker = self.random.randrange(1, WORKERS)
                self.cluster.kill("worker", worker)
                time.sleep(self.random.uniform(0.0, 0.5))
                self.cluster.restart("worker", worker)
        except Exception as error:  # told by the test
            self.error = error


def run_rounds(strategy, killer: Killer) -> tuple[np.ndarray, collections.Counter, list]:
    """Trains until all kills are over: the model, the merges of each worker by the servers' verdicts, the records."""
    merged, call = collections.Counter(), strategy.rounds.servers.call

    def listen(function, purpose, *seconds):
        found = call(function, purpose, *seconds)
        if purpose.startswith("while round"):
            merged.update(w for w in range(WORKERS) if found[w] == MERGED)
        return found

    strategy.rounds.servers.call = listen
    with strategy.scope():
        weight = tf.Variable(np.zeros(ENTRIES, np.float32))
    own = np.arange(ENTRIES) % WORKERS
    data = strategy.distribute_datasets_from_function(
        lambda context: tf.data.Dataset.from_tensors(context.input_pipeline_id).repeat()
    )
    batches = iter(data)

    def step(worker):
        weight.assign_add(tf.cast(tf.equal(own, tf.cast(worker, tf.int64)), tf.float32))

    killer.start()
    while killer.is_alive() or strategy.rounds.round < ROUNDS:
        strategy.run(step, (next(batches),))
    assert killer.error is None, killer.error
    give_up = time.monotonic() + 60.0
    while len(strategy.rounds.workers.live) < WORKERS:
        assert time.monotonic() < give_up, f"only {strategy.rounds.workers.live} are live a minute after the last kill"
        strategy.run(step, (next(batches),))
    last = strategy.rounds.round + 2 * PERIOD
    while strategy.rounds.round < last or strategy.rounds.round % PERIOD:
        strategy.run(step, (next(batches),))
    return weight.numpy(), merged, strategy.records


@pytest.mark.cluster
@pytest.mark.alone
@pytest.mark.flaky(reruns=0)
@pytest.mark.timeout(120 + 30 * KILLS)
@pytest.mark.parametrize("method", [PLUMP, SLIM], ids=lambda method: method.name)
def test_the_model_is_the_count_of_what_was_merged(method: Method):
    with slimdp_tf.local_cluster(workers=WORKERS, ps=2) as cluster:
        strategy = slimdp_tf.SlimDPStrategy(cluster, method, worker_deadline_s=30.0, seed=4)
        model, merged, records = run_rounds(strategy, Killer(cluster, strategy, seed=4))
    counts = [model[worker::WORKERS] for worker in range(WORKERS)]
    print(f"{method.name}: {len(records)} rounds, merged {dict(merged)}, model {[set(c) for c in counts]}")
    assert merged[0] == len(records) >= ROUNDS
    assert min(merged.values()) < len(records)  # kills were noticed
    assert set(counts[0]) == {len(records)}  # it was never killed, and the last push was whole
    for worker in range(1, WORKERS):
        if method is PLUMP:
            assert set(counts[worker]) == {merged[worker]}
        else:  # what a killed worker had not sent is lost, and nothing counts twice
            assert counts[worker].max() <= merged[worker]
            assert counts[worker].min() > 0
            np.testing.assert_array_equal(counts[worker], np.round(counts[worker]))
