"""One local cluster for all cluster tests of a process: starting one takes seconds."""

import functools
import threading

import slimdp_tf


@functools.cache
def shared_cluster():
    """A cluster of 4 workers and 3 servers; tests take the part they need. It ends with the process."""
    return slimdp_tf.local_cluster(workers=4, ps=3)


def strategy(method=None, workers=2, ps=2, **arguments):
    """A new strategy on the first workers and servers of the shared cluster."""
    return slimdp_tf.SlimDPStrategy(shared_cluster().part(workers, ps), method, **arguments)


def begin_together(rounds) -> None:
    """Nobody's first push is merged before all have pulled, as in a simulation: the order of pushes tells all then.

    For rounds without a barrier, before the first.
    """
    servers, begun = rounds.servers, set()
    call, all_there = servers.call, threading.Barrier(len(rounds.workers))

    def call_together(function, purpose, *further):
        thread = threading.get_ident()
        if purpose.endswith("was merged") and thread not in begun:
            begun.add(thread)
            all_there.wait(60)
        return call(function, purpose, *further)

    servers.call = call_together
