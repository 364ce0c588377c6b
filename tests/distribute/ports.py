"""Ports of this host, for tests of waits."""

import contextlib
import socket


@contextlib.contextmanager
def listening(host: str = "127.0.0.1"):
    """The port of a socket that accepts connections."""
    with socket.socket() as server:
        server.bind((host, 0))
        server.listen()
        yield server.getsockname()[1]


def free_address() -> str:
    """An address at which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"
