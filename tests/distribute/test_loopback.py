"""Ports that hear their own machine alone: tried from another host, from another address, and before they were kept."""

import json
import pathlib
import socket
import time

import pytest
import tensorflow as tf

from slimdp_tf.distribute import loopback
from slimdp_tf.distribute.spec import answers
from tests import sources
from tests.distribute.namespaces import Hosts, why_not

LOCAL = {"chief": ["127.0.0.1:1"], "worker": ["localhost:2"], "ps": ["[::1]:3"]}


@pytest.fixture
def server():
    """A socket that listens on all interfaces, as TensorFlow's do."""
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as made:
        yield made


@pytest.fixture
def other_address() -> str:
    """An address of this machine that is not a loopback address; nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.77", 9))
        except OSError as error:
            pytest.skip(f"this machine has no other address: {error}")
        return probe.getsockname()[0]


def is_loopback(address: str) -> bool:
    return loopback.is_local({"worker": [address]})


def test_loopback_addresses_are_told_from_others():
    assert loopback.is_local(LOCAL)
    assert is_loopback("127.9.0.1:5") and is_loopback("[::ffff:127.0.0.1]:5")
    for other in ("10.0.0.1:5", "[::]:5", "[fe80::1%eth0]:5", "h1:5", "0.0.0.0:5", "127.0.0.1.example:5"):
        assert not is_loopback(other)
    assert not loopback.is_local({**LOCAL, "ps": ["[::1]:3", "h1:4"]})


def test_this_kernel_can_keep_a_port():
    assert loopback.why_open() == ""


def device_of(port: int) -> list[bytes]:
    """The devices that the listening sockets of this process at a port are bound to."""
    with loopback._sockets_at(port) as found:
        listening = [one for one in found if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)]
        return [one.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16).strip(b"\0") for one in listening]


def test_a_kept_port_answers_on_the_loopback_device(server):
    port = server.getsockname()[1]
    assert device_of(port) == [b""]
    assert loopback.keep(port)
    assert device_of(port) == [b"lo"]
    assert answers(f"127.0.0.1:{port}") and answers(f"[::1]:{port}")


def test_a_kept_port_does_not_answer_at_another_address(server, other_address):
    address = f"{other_address}:{server.getsockname()[1]}"
    assert answers(address)
    loopback.keep(server.getsockname()[1])
    assert not answers(address)


def test_a_connection_that_came_before_is_ended(server, other_address):
    port, clients = server.getsockname()[1], []
    for host in ("127.0.0.1", other_address):
        clients.append(socket.create_connection((host, port)))
    accepted = [server.accept()[0] for _ in clients]
    loopback.keep(port)
    clients[1].settimeout(5.0)
    assert clients[1].recv(1) == b""  # the end
    accepted[0].send(b"x")
    assert clients[0].recv(1) == b"x"
    for one in (*clients, *accepted):
        one.close()


def test_a_socket_that_does_not_listen_yet_is_left_alone():
    with socket.socket() as made:
        made.bind(("0.0.0.0", 0))
        port = made.getsockname()[1]
        assert not loopback.keep(port)
        made.listen()
        assert loopback.keep(port)
        with socket.create_connection(("127.0.0.1", port), timeout=5.0) as client, made.accept()[0] as accepted:
            accepted.sendall(b"x")
            assert client.recv(1) == b"x"


def test_a_socket_that_is_closed_while_it_is_looked_at_is_closed(server):
    client = socket.create_connection(("127.0.0.1", server.getsockname()[1]), timeout=5.0)
    accepted = server.accept()[0]
    with loopback._sockets_at(server.getsockname()[1]) as found:
        assert accepted.fileno() in [one.fileno() for one in found]
        accepted.close()
        assert client.recv(1) == b""  # the end
    client.close()


def test_where_nothing_listens_nothing_is_kept():
    with socket.create_server(("127.0.0.1", 0)) as made:
        port = made.getsockname()[1]
    assert not loopback.keep(port)


def test_a_port_is_kept_while_it_is_opened():
    with socket.create_server(("127.0.0.1", 0)) as made:
        port = made.getsockname()[1]
    spec = {**LOCAL, "worker": [f"127.0.0.1:{port}"]}
    with loopback.kept(spec, spec["worker"][0], "worker 0"), socket.create_server(("0.0.0.0", port)):
        give_up = time.monotonic() + 5.0
        while device_of(port) != [b"lo"]:
            assert time.monotonic() < give_up
        assert answers(f"127.0.0.1:{port}")


def test_a_port_of_a_cluster_on_several_hosts_is_left_as_it_is(server):
    port = server.getsockname()[1]
    spec = {**LOCAL, "worker": [f"10.0.0.1:{port}"]}
    with loopback.kept(spec, spec["worker"][0], "worker 0"):
        pass
    assert device_of(port) == [b""]


def test_where_it_cannot_be_a_warning_names_the_port(monkeypatch, caplog):
    monkeypatch.setattr(loopback, "why_open", lambda: "no devices here")
    monkeypatch.setattr(tf.get_logger(), "propagate", True)
    with loopback.kept(LOCAL, "localhost:2", "worker 0"):
        pass
    (warning,) = caplog.messages
    assert "Whoever reaches this machine can run code" in warning
    assert warning.endswith("worker 0 at localhost:2 (no devices here).")


def test_says_why_a_port_cannot_be_kept(monkeypatch):
    def refuse(one):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(loopback, "_bind", refuse)
    assert "the loopback device: [Errno 1] Operation not permitted" in loopback.why_open.__wrapped__()
    monkeypatch.setattr(loopback, "keep", lambda port: False)
    assert loopback.why_open.__wrapped__() == "this process does not find its own sockets"
    monkeypatch.setattr(loopback.sys, "platform", "darwin")
    assert loopback.why_open.__wrapped__() == "darwin does not bind sockets to a device"


# -- a cluster --------------------------------------------------------------------------------------------------------


def listening_ports(pid: int) -> list[int]:
    """Ports at which anything listens in the network namespace of a process."""
    lines = [line for f in ("tcp", "tcp6") for line in pathlib.Path(f"/proc/{pid}/net/{f}").read_text().splitlines()]
    states = [line.split()[1:4] for line in lines if ":" in line.split()[0]]
    return sorted({int(local.rpartition(":")[2], 16) for local, _, state in states if state == "0A"})


def knock(hosts: Hosts, host: int, addresses: list[str], log: pathlib.Path) -> list[str]:
    """Which addresses answer someone on a host."""
    assert hosts.start(host, "tests.distribute.knock", *addresses, log=str(log)).wait(timeout=60) == 0, log.read_text()
    return json.loads(log.read_text().splitlines()[-1])


@pytest.mark.cluster
def test_nobody_on_another_host_reaches_a_local_cluster_that_trains(tmp_path):
    if reason := why_not():
        pytest.skip(f"hosts cannot be made: network namespaces are not permitted here ({reason})")
    path, log = tmp_path / "pids", tmp_path / "chief.log"
    with Hosts(2) as hosts:
        arguments = ("tests.distribute.chief_program", "trains", str(path))
        chief = hosts.start(0, *arguments, log=str(log), PYTHONPATH=str(sources.ROOT))
        give_up = time.monotonic() + 120
        while not path.exists() and chief.poll() is None and time.monotonic() < give_up:
            time.sleep(0.1)
        assert path.exists(), log.read_text()
        tasks = listening_ports(chief.pid)
        hosts.start(0, "http.server", "9999", "--bind", "0.0.0.0", log=str(tmp_path / "open.log"))
        while 9999 not in listening_ports(chief.pid):
            assert time.monotonic() < give_up
            time.sleep(0.1)
        ports = [*tasks, 9999]
        inside = knock(hosts, 0, [f"127.0.0.1:{port}" for port in ports], tmp_path / "inside.log")
        outside = knock(hosts, 1, [f"{hosts.addresses[0]}:{port}" for port in ports], tmp_path / "outside.log")
        assert len(tasks) == 3  # chief, worker, ps
        assert inside == [f"127.0.0.1:{port}" for port in ports]
        assert outside == [f"{hosts.addresses[0]}:9999"]  # what is open to all is reached
        assert chief.poll() is None, log.read_text()
