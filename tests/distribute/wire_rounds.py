"""Trains on a local cluster in a network namespace of its own and writes down what crossed the wire, round by round.

    unshare --net python -m tests.distribute.wire_rounds RESULT.json

Two counters are read after every round, neither of which knows anything of this package:

* the interface: TX bytes of `lo` in /proc/net/dev. Every byte that crosses counts once, with TCP and IP headers,
  gRPC's framing, and the chief's own calls.
* the connections: `ss -tinp`, bytes sent by the process of one role to the process of another. Workers send pushes,
  servers send pulls, so the two directions stand apart.
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
ROUNDS = 3 * Q
WIDTH = 1024  # n = 1,050,625 with it
METHODS = {
    "plump": methods.plump(),
    "quant": methods.quant(),
    "quant, pull too": methods.quant(quantize_pull=True),
    "slim": methods.slim(ALPHA, BETA, q=Q),
    "slim, derived": methods.slim(ALPHA, BETA, q=Q, explorer_keys="derived"),
    "slim_quant": methods.slim_quant(ALPHA, BETA, q=Q, explorer_keys="derived"),
}


def sent_by_interface() -> int:
    """TX bytes of lo."""
    for line in pathlib.Path("/proc/net/dev").read_text().splitlines():
        name, _, counters = line.partition(":")
        if name.strip() == "lo":
            return int(counters.split()[8])
    raise RuntimeError("There is no lo in /proc/net/dev.")


class Connections:
    """Bytes sent so far between roles, from the kernel's count of every TCP connection of this namespace.

    Args:
        roles: process id -> "chief", "worker" or "ps".
    """

    def __init__(self, roles: dict[int, str]):
        self.roles = roles

    def sent(self) -> dict[str, int]:
        """ "from>to" -> bytes."""
        listing = subprocess.run(["ss", "-tinpOH"], capture_output=True, text=True, check=True).stdout
        ends = {}
        for line in listing.splitlines():
            owner, sent = re.search(r"pid=(\d+)", line), re.search(r"bytes_sent:(\d+)", line)
            if owner and int(owner[1]) in self.roles:
                local, peer = (a.replace("[::ffff:127.0.0.1]", "127.0.0.1") for a in line.split()[3:5])
                ends[local, peer] = self.roles[int(owner[1])], int(sent[1]) if sent else 0
        totals: dict[str, int] = {}
        for (local, peer), (role, count) in ends.items():
            other = ends.get((peer, local), ("?", 0))[0]
            totals[f"{role}>{other}"] = totals.get(f"{role}>{other}", 0) + count
        return totals


class Watch(keras.callbacks.Callback):
    """Reads both counters after every round."""

    def __init__(self, connections: Connections):
        super().__init__()
        self.connections = connections
        self.readings: list[tuple[int, dict[str, int]]] = []

    def read(self) -> None:
        self.readings.append((sent_by_interface(), self.connections.sent()))

    def on_train_batch_end(self, batch, logs=None) -> None:
        self.read()


def train(cluster, method, width: int, connections: Connections) -> list[dict]:
    """A row per round: what the strategy counted and what the counters say."""
    strategy = slimdp_tf.SlimDPStrategy(cluster, method)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROUNDS * WORKERS, width)).astype("float32")
    with strategy.scope():
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.Input((width,)), keras.layers.Dense(width), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.001), "mse")
    watch = Watch(connections)
    watch.read()
    model.fit(x, x[:, :1], batch_size=1, shuffle=False, verbose=0, callbacks=[watch])
    rows = []
    for record, before, after in zip(strategy.records, watch.readings, watch.readings[1:]):
        between = {way: after[1][way] - before[1].get(way, 0) for way in after[1]}
        traffic = record.traffic
        counted = {"push": traffic.push_bytes, "pull": traffic.pull_bytes, "keys": traffic.keys_bytes}
        rows.append({"n": model.count_params(), "counted": counted, "wire": after[0] - before[0], "sent": between})
        rows[-1]["cache"] = [record.cache_hits, record.cache_misses]
    return rows


def main() -> None:
    """Measures every method, with the model and with one so small that only the constant part is left."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with slimdp_tf.local_cluster(workers=WORKERS, ps=PS) as cluster:
        roles = {os.getpid(): "chief"}
        roles.update({cluster.pid("worker", i): "worker" for i in range(WORKERS)})
        roles.update({cluster.pid("ps", i): "ps" for i in range(PS)})
        connections = Connections(roles)
        found = {
            name: {"model": train(cluster, m, WIDTH, connections), "tiny": train(cluster, m, 4, connections)}
            for name, m in METHODS.items()
        }
    pathlib.Path(sys.argv[1]).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
