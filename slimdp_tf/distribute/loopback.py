"""The port of a task whose cluster is on one machine: it hears that machine alone.

TensorFlow's servers listen on all interfaces and ask nobody who they are; where they listen cannot be set. So the
listening socket is bound to the loopback device: whoever is outside the machine is refused by the kernel. A process
needs no rights for this (since Linux 5.7), and its other sockets are as they were. In a network namespace of its own
the chief, which is the user's program, would have no network.
"""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator

import tensorflow as tf

from slimdp_tf.distribute import sockets
from slimdp_tf.distribute.spec import Spec

_DEVICE = b"lo\0"


def is_local(spec: Spec) -> bool:
    """Whether every task of a cluster is at a loopback address."""
    return all(_is_loopback(address.rpartition(":")[0].strip("[]")) for tasks in spec.values() for address in tasks)


@functools.cache
def why_open() -> str:
    """Why a port of this process cannot be kept to this machine; empty if it can."""
    if sys.platform != "linux":
        return f"{sys.platform} does not bind sockets to a device"
    try:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            if not keep(probe.getsockname()[1]):
                return "this process does not find its own sockets"
            socket.create_connection(probe.getsockname(), timeout=1.0).close()
    except OSError as error:
        return f"this process cannot bind its sockets to the loopback device: {error}"
    return ""


def keep(port: int) -> bool:
    """Keeps the port at which this process listens to this machine; whether it listens there.

    A connection that was made before to another address than a loopback address is ended.
    """
    with _sockets_at(port) as found:
        listeners = [one for one in found if _is_listening(one)]
        for listener in listeners:
            _bind(listener)
        give_up = time.monotonic() + 1.0
        while any(map(_count_waiting, listeners)) and time.monotonic() < give_up:
            time.sleep(0.001)  # what is not accepted yet is not to be found yet
    with _sockets_at(port) as found:
        for one in found:
            if _is_connected(one) and not _is_loopback(one.getsockname()[0]):
                with contextlib.suppress(OSError):  # it has ended by itself
                    one.shutdown(socket.SHUT_RDWR)
    return bool(listeners)


@contextlib.contextmanager
def kept(spec: Spec, address: str, task: str) -> Iterator[None]:
    """While the port of a task is opened in it: from the beginning it hears this machine alone, if the cluster does.

    Where that cannot be, a warning names the port.

    Args:
        spec: the cluster.
        address: of the task, host:port.
        task: what a warning calls it.
    """
    if not is_local(spec):
        yield
        return
    if why_open():
        warn_of([f"{task} at {address}"])
        yield
        return
    port, is_over = int(address.rpartition(":")[2]), threading.Event()

    def watch() -> None:
        while not keep(port) and not is_over.wait(0.001):
            continue

    watcher = threading.Thread(target=watch, daemon=True, name="slimdp keeps a port")
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()
        keep(port)


def warn_of(tasks: list[str]) -> None:
    """Says which tasks whoever reaches this machine can reach."""
    message = "Whoever reaches this machine can run code by these ports, which listen on all interfaces: %s (%s)."
    tf.get_logger().warning(message, ", ".join(tasks), why_open())


def _is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host == "localhost"
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def _bind(one: socket.socket) -> None:
    one.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, _DEVICE)


def _is_listening(one: socket.socket) -> bool:
    return bool(one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def _is_connected(one: socket.socket) -> bool:
    """Not so between bind and listen: what is shut down then listens later, and whatever it accepts is broken."""
    try:
        one.getpeername()
    except OSError:
        return False
    return True


def _count_waiting(listener: socket.socket) -> int:
    """Connections that are there and not yet accepted."""
    return struct.unpack_from("I", listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), 24)[0]


def _sockets_at(port: int) -> contextlib.AbstractContextManager[list[socket.socket]]:
    """This process's sockets at a port, borrowed."""
    return sockets.borrowed(lambda one: one.getsockname()[1] == port)
