"""How fast a link really is: one raw TCP connection between two hosts.

probe.py receive PORT, then probe.py send HOST:PORT BYTES on the other host. Needs Python alone.
"""

from __future__ import annotations

import pathlib
import socket
import subprocess
import sys
import time
from typing import Any

_PIECE_BYTES = 1 << 20
_SECONDS = 1.0  # of a shaped link
_UNSHAPED_BYTES = 200_000_000
_PATIENCE_S = 60.0


def measure_mbit_s(network: Any, source: str, target: str) -> float:
    """Returns the payload that one TCP connection carries from one host to another, in Mbit/s.

    Args:
        network: whose `start`, `address` and `rate` are used.
        source: the sending host.
        target: the receiving host.

    Raises:
        OSError: the hosts do not reach one another.
    """
    size = int(network.rate.mbit_s * 1e6 / 8 * _SECONDS) if network.rate.mbit_s else _UNSHAPED_BYTES
    address = network.address(target)
    program, port = [sys.executable, str(pathlib.Path(__file__).resolve())], address.rpartition(":")[2]
    receiver = network.start(target, [*program, "receive", port], stdout=subprocess.PIPE)
    receiver.stdout.readline()
    sender = network.start(source, [*program, "send", address, str(size)])
    line = receiver.stdout.readline()
    codes = sender.wait(timeout=_PATIENCE_S), receiver.wait(timeout=_PATIENCE_S)
    if codes != (0, 0) or not line:
        raise OSError(f"A connection from {source} to {target} at {address} failed; programs ended with {codes}.")
    return float(line)


def receive(port: int) -> float:
    """Takes one connection at `port` and returns its payload in Mbit/s, from the first bytes to the end."""
    with socket.create_server(("", port)) as server:
        server.settimeout(_PATIENCE_S)
        print("listening", flush=True)
        connection, _ = server.accept()
    connection.settimeout(_PATIENCE_S)
    buffer, total = bytearray(_PIECE_BYTES), 0
    count = connection.recv_into(buffer)
    start = time.perf_counter()
    while count := connection.recv_into(buffer):
        total += count
    return total * 8e-6 / max(time.perf_counter() - start, 1e-9)


def send(address: str, size: int) -> None:
    """Sends so many bytes to host:port."""
    host, _, port = address.rpartition(":")
    piece = memoryview(bytes(_PIECE_BYTES))
    with socket.create_connection((host, int(port)), timeout=_PATIENCE_S) as connection:
        while size > 0:
            size -= connection.send(piece[: min(size, _PIECE_BYTES)])


if __name__ == "__main__":
    if sys.argv[1] == "receive":
        print(receive(int(sys.argv[2])), flush=True)
    else:
        send(sys.argv[2], int(sys.argv[3]))
