"""A chief that is refused, twice, before it may train; prints what it was told as JSON.

python -m tests.distribute.refused_program
"""

import json
import socket
import time

import slimdp_tf


def say_why(cluster, **arguments) -> tuple[str, float]:
    """Why no strategy can be made, and the seconds until that was said."""
    started = time.monotonic()
    try:
        slimdp_tf.SlimDPStrategy(cluster, **arguments)
    except slimdp_tf.ClusterError as error:
        return str(error), time.monotonic() - started
    return "", time.monotonic() - started


def main() -> None:
    with slimdp_tf.local_cluster(workers=1, ps=1) as cluster:
        port = int(cluster.addresses["chief"][0].rpartition(":")[2])
        with socket.create_server(("", port)):
            in_use = say_why(cluster)
        cluster.suspend("worker", 0)
        suspended = say_why(cluster, timeout_s=2)
        cluster.resume("worker", 0)
        workers = slimdp_tf.SlimDPStrategy(cluster).workers
        told = {"port": port, "in_use": in_use, "suspended": suspended, "workers": workers}
        print(json.dumps(told | {"worker": cluster.addresses["worker"][0]}))


if __name__ == "__main__":
    main()
