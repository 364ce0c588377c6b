"""Trains on a local cluster in a network namespace of its own and writes down what crossed the wire, round by round.

    unshare --net python -m tests.distribute.wire_rounds RESULT.json
    unshare --net python -m tests.distribute.wire_rounds RESULT.json others   # totals of all other methods

Two counters are read after every round, neither of which knows anything of this package:

* the interface: TX bytes of `lo` in /proc/net/dev. Every byte that crosses counts once, with TCP and IP headers,
  gRPC's framing, and the chief's own calls.
* the connections: `ss -tinp`, bytes that the process of one role sent to the process of another, without TCP and IP
  headers. Workers send pushes, servers send pulls, so the two directions stand apart.

A segment that the kernel sent twice, because the machine was busy, is taken off both.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys

import keras
import numpy as np

import slimdp_tf
from slimdp_tf import methods

WORKERS, PS = 2, 2
ALPHA, BETA, Q = 0.3, 0.15, 8
ROUNDS = 3 * Q  # cores are chosen after rounds 0, 7, 15 and 23; by round 9 every function has run once
WIDTH, TINY_WIDTH = 1500, 4  # n = 2,253,001 and 25
METHODS = {
    "plump": methods.plump(),
    "quant": methods.quant(),
    "quant, pull too": methods.quant(quantize_pull=True),
    "slim": methods.slim(ALPHA, BETA, q=Q),
    "slim, derived": methods.slim(ALPHA, BETA, q=Q, explorer_keys="derived"),
    "slim_quant": methods.slim_quant(ALPHA, BETA, q=Q, explorer_keys="derived"),
}

OTHERS = {  # with ratios at which what a round costs anyway, the column "empty" of `test_wire.py`, is little
    "half": methods.half(),
    "one_bit": methods.one_bit(),
    "terngrad": methods.terngrad(),
    "adaptive_quant": methods.adaptive_quant(8),
    "distribution_quant": methods.distribution_quant(),
    "top_k": methods.top_k(0.7),
    "local_combine": methods.local_combine("error", 0.7),
    "random_k": methods.random_k(0.3),
    "dgc": methods.dgc(0.3, warmup=0),
    "threshold": methods.threshold(1e-7),
    "relevance": methods.relevance(0.3),
    "predictive": methods.predictive(0.3),
    "sampled_rows": methods.sampled_rows(300, 300, tall=1000),
    "local_sgd": methods.local_sgd(2),
    "post_local_sgd": methods.post_local_sgd(2, 4),
    "adaptive_period": methods.adaptive_period(2, 2),
    "fed_avg": methods.fed_avg(2),
    "easgd": methods.easgd(),
    "eamsgd": methods.eamsgd(),
    "bmuf": methods.bmuf(tau=2),
    "diloco": methods.diloco(2),
    "loss_weighted": methods.loss_weighted(),
    "event_triggered": methods.event_triggered(),
    "backup_workers": methods.backup_workers(),
    "k_sync": methods.k_sync(1),
    "plump, async": methods.plump(pacing="async"),
    "slim, async": methods.slim(ALPHA, BETA, q=Q, memory="carry", pacing="async"),
}

SMALL = ("one_bit", "adaptive_quant")  # move so little that what a round costs anyway is taken off
EMPTY = ("plump", "slim_quant")  # a round moves the fewest and the most tensors


def sent_by_interface() -> int:
    """TX bytes of lo."""
    for line in pathlib.Path("/proc/net/dev").read_text().splitlines():
        name, _, counters = line.partition(":")
        if name.strip() == "lo":
            return int(counters.split()[8])
    raise RuntimeError("There is no lo in /proc/net/dev.")


class Counters:
    """Both counters: bytes of the interface, and bytes from role to role by the kernel's count of every connection.

    Args:
        roles: process id -> "chief", "worker" or "ps".
    """

    def __init__(self, roles: dict[int, str]):
        self.roles = roles

    def read(self) -> dict[str, int]:
        """ "lo" and "from>to" -> bytes so far."""
        listing = subprocess.run(["ss", "-tinpOH"], capture_output=True, text=True, check=True).stdout
        ends, sent_twice = {}, 0
        for line in listing.splitlines():
            owner = re.search(r"pid=(\d+)", line)
            sent, again = (int(f[1]) if (f := re.search(rf"{name}:(\d+)", line)) else 0 for name in _SENT)
            sent_twice += again
            if owner and int(owner[1]) in self.roles:
                local, peer = (address.rpartition(":")[2] for address in line.split()[3:5])  # ports of 127.0.0.1%lo
                ends[local, peer] = self.roles[int(owner[1])], sent - again
        totals = {"lo": sent_by_interface() - sent_twice}
        for (local, peer), (role, count) in ends.items():
            way = f"{role}>{ends.get((peer, local), ('?',))[0]}"
            totals[way] = totals.get(way, 0) + count
        return totals


_SENT = ("bytes_sent", "bytes_retrans")


class Watch(keras.callbacks.Callback):
    """Reads the counters after every round."""

    def __init__(self, counters: Counters):
        super().__init__()
        self.counters = counters
        self.readings = [counters.read()]

    def on_train_batch_end(self, batch, logs=None) -> None:
        self.readings.append(self.counters.read())


def between(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {way: after[way] - before.get(way, 0) for way in after}


class Trial:
    """A model under a method, on rows of zeros and noise."""

    def __init__(self, cluster, method, width: int, counters: Counters):
        self.strategy, self.counters = slimdp_tf.SlimDPStrategy(cluster, method), counters
        self.x = np.random.default_rng(0).standard_normal((ROUNDS * WORKERS, width)).astype("float32")
        with self.strategy.scope():
            keras.utils.set_random_seed(0)
            self.model = keras.Sequential([keras.Input((width,)), keras.layers.Dense(width), keras.layers.Dense(1)])
            self.model.compile(keras.optimizers.SGD(0.001), "mse")

    def fit(self, rounds: int, callbacks=()) -> None:
        x = self.x[: rounds * WORKERS]
        self.model.fit(x, x[:, :1], batch_size=1, shuffle=False, verbose=0, callbacks=list(callbacks))

    def rounds(self) -> list[dict]:
        """A row per round: what the strategy counted, and what crossed."""
        watch, rows = Watch(self.counters), []
        self.fit(ROUNDS, [watch])
        for record, before, after in zip(self.strategy.records, watch.readings, watch.readings[1:]):
            traffic = record.traffic
            counted = {"push": traffic.push_bytes, "pull": traffic.pull_bytes, "keys": traffic.keys_bytes}
            rows.append({"counted": counted, "crossed": between(before, after), "misses": record.cache_misses})
        return rows

    def total(self) -> dict[str, int]:
        """What the strategy counted, and what crossed, of all that a second `fit` moves."""
        self.fit(ROUNDS // 6)
        before, counted = self.counters.read(), self.strategy.traffic.exchange_bytes
        self.fit(ROUNDS // 3)
        crossed = between(before, self.counters.read())["lo"]
        return {"counted": self.strategy.traffic.exchange_bytes - counted, "crossed": crossed}

    def visits(self) -> dict[str, dict]:
        """What the chief moves when a user reads the weights, and when a user sets them and trains on."""
        for _ in range(2):  # the first time warms up
            self.fit(1)
            readings = [(self.counters.read(), self.strategy.traffic.chief_bytes)]
            weights = self.model.get_weights()
            readings.append((self.counters.read(), self.strategy.traffic.chief_bytes))
            self.model.set_weights(weights)
            self.fit(1)
            readings.append((self.counters.read(), self.strategy.traffic.chief_bytes))
        return {
            name: {"counted": after[1] - before[1], "crossed": between(before[0], after[0])}
            for name, before, after in zip(("read", "set"), readings, readings[1:])
        }


def main() -> None:
    """Measures every method; two of them also with a model so small that only what a round costs anyway is left."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    found = {}
    with slimdp_tf.local_cluster(workers=WORKERS, ps=PS) as cluster:
        roles = {os.getpid(): "chief"}
        roles.update({cluster.pid("worker", i): "worker" for i in range(WORKERS)})
        roles.update({cluster.pid("ps", i): "ps" for i in range(PS)})
        for name, method in OTHERS.items() if sys.argv[2:] == ["others"] else ():
            found[name] = Trial(cluster, method, WIDTH, Counters(roles)).total()
            if name in SMALL:
                empty = Trial(cluster, method, TINY_WIDTH, Counters(roles)).total()
                found[name] = {kind: count - empty[kind] for kind, count in found[name].items()}
        for name, method in METHODS.items() if not found else ():
            trial = Trial(cluster, method, WIDTH, Counters(roles))
            found[name] = {"n": trial.model.count_params(), "rounds": trial.rounds()}
            if name in EMPTY:
                found[name]["empty"] = Trial(cluster, method, TINY_WIDTH, Counters(roles)).rounds()
            if name == "plump":
                found[name]["visits"] = trial.visits()
    pathlib.Path(sys.argv[1]).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
