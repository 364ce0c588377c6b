"""Whether the server of a task answers, and not its host alone.

A host accepts connections for a task that is suspended, or hangs. A gRPC server greets whoever connects.
"""

from __future__ import annotations

import socket
from concurrent import futures

_AT_ONCE = 64  # tasks that are asked at a time


def greets(address: str, seconds: float = 1.0) -> bool:
    """Whether a gRPC server answers at host:port within `seconds`."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=seconds) as connection:
            return bool(connection.recv(1))
    except (OSError, ValueError):
        return False


def find_silent(tasks: dict[str, str]) -> dict[str, str]:
    """Those of `tasks`, name -> host:port, whose server does not answer; all are asked at once."""
    with futures.ThreadPoolExecutor(_AT_ONCE) as threads:
        return {name: tasks[name] for name, is_there in zip(tasks, threads.map(greets, tasks.values())) if not is_there}
