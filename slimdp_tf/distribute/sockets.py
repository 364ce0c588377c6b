"""The TCP sockets of this process: TensorFlow has them, and options of theirs cannot be set by TensorFlow.

A connection that nothing is sent on does not notice that the other end has given it up. While a link is down gRPC's
servers give up after 20 s; a client that waits for an answer then waits for ever, and holds a thread of its task. So
every end asks whether the other one still knows the connection (TCP keepalive). What was sent and not acknowledged is
repeated all the same, and finds out by itself.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator

_LOOK_S = 1.0  # seconds between two looks for new connections
_OPTIONS = {
    "TCP_KEEPIDLE": 5,  # seconds of silence after which the other end is asked
    "TCP_KEEPINTVL": 5,  # and seconds after which it is asked again
    "TCP_KEEPCNT": 4,  # questions that nobody answers, until a connection is given up
}

_ports: frozenset[int] = frozenset()  # of clusters that this process is part of
_lock = threading.Lock()


def watch_over(addresses: Iterable[str]) -> None:
    """Connections of this process with these tasks (host:port) end when the other end has given them up."""
    global _ports
    if sys.platform != "linux":
        return
    with _lock:
        is_running = bool(_ports)
        _ports = _ports.union(int(address.rpartition(":")[2]) for address in addresses)  # the thread may be reading it
        if _ports and not is_running:
            threading.Thread(target=_watch, daemon=True, name="slimdp keeps connections").start()


def _watch() -> None:
    while True:
        with contextlib.suppress(OSError):  # no more files can be opened just now
            keep_alive(_ports)
        time.sleep(_LOOK_S)


def keep_alive(ports: frozenset[int]) -> int:
    """Sets the options of every connection that has one of `ports` at either end; how many there are."""
    with borrowed(lambda one: bool(ports & {one.getsockname()[1], one.getpeername()[1]})) as found:
        for one in found:
            with contextlib.suppress(OSError):  # it has ended meanwhile
                one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for name, value in _OPTIONS.items():
                    one.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        return len(found)


@contextlib.contextmanager
def borrowed(is_wanted: Callable[[socket.socket], bool]) -> Iterator[list[socket.socket]]:
    """Internet sockets of this process: who has one may close it meanwhile, and handles to it end with that.

    A handle of our own would keep it open after its owner closed it. TensorFlow's poller would then hear of events
    of a connection that it has forgotten.

    Args:
        is_wanted: which; a socket for which it raises OSError is not.
    """
    with contextlib.ExitStack() as handles:
        found = []
        for number in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # closed meanwhile
                if os.readlink(f"/proc/self/fd/{number}").startswith("socket:"):
                    one = socket.socket(fileno=int(number))
                    handles.callback(one.detach)
                    if one.family in (socket.AF_INET, socket.AF_INET6) and is_wanted(one):
                        found.append(one)
        yield found
