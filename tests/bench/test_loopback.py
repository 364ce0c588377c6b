"""The loopback stands for a network: it starts, counts and ends."""

import socket
import subprocess
import sys
import time

import pytest

from slimdp_tf.bench.loopback import Loopback
from slimdp_tf.bench.rates import read_rate

UNSHAPED = read_rate("unshaped")


def test_programs_end_with_it():
    with Loopback(["a", "b"], UNSHAPED) as network:
        assert network.address("a") != network.address("b")
        child = network.start("a", [sys.executable, "-c", "import time; time.sleep(600)"])
        assert child.poll() is None and network.find_pid(child) == child.pid
    assert child.poll() is not None
    with pytest.raises(ProcessLookupError, match="has ended with code -9"):
        network.find_pid(child)
    network.close()


def test_what_a_program_started_ends_too():
    code = "import subprocess; print(subprocess.Popen(['sleep', '600']).pid, flush=True); input()"
    with Loopback(["a"], UNSHAPED) as network:
        child = network.start("a", [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        pid = int(child.stdout.readline())
    give_up = time.monotonic() + 10
    while _is_running(pid) and time.monotonic() < give_up:
        time.sleep(0.02)
    assert not _is_running(pid)


def _is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_bytes_are_the_devices():
    with Loopback(["a"], UNSHAPED) as network, socket.create_server(("127.0.0.1", 0)) as server:
        before = network.read_bytes()["loopback"][0]
        with socket.create_connection(server.getsockname()) as sender, server.accept()[0] as receiver:
            sender.sendall(bytes(100_000))
            left = 100_000
            while left:
                left -= len(receiver.recv(left))
        assert network.read_bytes()["loopback"][0] - before >= 100_000


def test_shaping_is_refused():
    with pytest.raises(ValueError, match="must be unshaped. Received: 100mbit"):
        Loopback(["a"], read_rate("100mbit"))
