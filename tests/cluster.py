"""One local cluster for all cluster tests of a process: starting one takes seconds."""

import functools

import slimdp_tf


@functools.cache
def shared_cluster():
    """A cluster of 4 workers and 3 servers; tests take the part they need. It ends with the process."""
    return slimdp_tf.local_cluster(workers=4, ps=3)


def strategy(method=None, workers=2, ps=2, **arguments):
    """A new strategy on the first workers and servers of the shared cluster."""
    return slimdp_tf.SlimDPStrategy(shared_cluster().part(workers, ps), method, **arguments)
