"""Ports of this host, for tests of waits."""

import contextlib
import socket
import threading


@contextlib.contextmanager
def listening(host: str = "127.0.0.1"):
    """The port of a socket that accepts connections, as that of a task which is suspended."""
    with socket.socket() as server:
        server.bind((host, 0))
        server.listen()
        yield server.getsockname()[1]


@contextlib.contextmanager
def greeting():
    """The port of a server that says something to whoever connects, as gRPC does."""

    def greet(server: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the end
            while True:
                with server.accept()[0] as connection:
                    connection.sendall(b"hello")

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=greet, args=(server,), daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def free_address() -> str:
    """An address at which nothing listens."""
    return free_addresses(1)[0]


def free_addresses(count: int) -> list[str]:
    """Different addresses at which nothing listens."""
    with contextlib.ExitStack() as probes:
        sockets = [probes.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [f"127.0.0.1:{probe.getsockname()[1]}" for probe in sockets]
