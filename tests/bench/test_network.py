"""Networks of namespaces: what is built carries, is shaped, counts, and is gone afterwards however its owner ends."""

import os
import signal
import subprocess
import sys
import time

import pytest

from slimdp_tf.bench import network as networks
from slimdp_tf.bench.network import Network
from slimdp_tf.bench.probe import measure_mbit_s
from slimdp_tf.bench.rates import Rate, read_rate
from tests import sources

RATE = read_rate("20mbit")
OWNER = """
import sys, time
from slimdp_tf.bench.network import Network
from slimdp_tf.bench.rates import read_rate
with Network(["a", "b"], read_rate("100mbit")) as network:
    network.start("a", [sys.executable, "-c", "import subprocess; subprocess.run(['sleep', '601'])"])
    time.sleep(1)
    print(network._switch, *network._pids.values(), flush=True)
    time.sleep(600)
"""


@pytest.fixture
def permitted():
    """Skips where this machine does not let us make namespaces."""
    try:
        with Network(["a"], RATE):
            pass
    except OSError as error:
        pytest.skip(f"no network namespaces here: {error}")


def list_namespaces() -> set[str]:
    """The network namespaces that any process stands in."""
    return set(read_processes()[1].values())


def list_namespaces_of(owner: int) -> set[str]:
    """The network namespaces, other than ours, of a process and of what it started: others may run here, too."""
    parents, namespaces = read_processes()
    family, size = {owner}, 0
    while len(family) > size:
        size = len(family)
        family |= {pid for pid, parent in parents.items() if parent in family}
    return {namespaces[pid] for pid in family if pid in namespaces} - {os.readlink("/proc/self/ns/net")}


def read_processes() -> tuple[dict[int, int], dict[int, str]]:
    """Parent, and network namespace, of every process."""
    parents, namespaces = {}, {}
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            namespaces[pid] = os.readlink(f"/proc/{pid}/ns/net")
            with open(f"/proc/{pid}/stat") as file:
                parents[pid] = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended
    return parents, namespaces


def await_end(namespaces: set[str]) -> bool:
    """Whether no process stands in any of them any more, after 10 s at most."""
    give_up = time.monotonic() + 10
    while namespaces & list_namespaces() and time.monotonic() < give_up:
        time.sleep(0.05)
    return not namespaces & list_namespaces()


@pytest.mark.cluster
def test_carries_what_it_is_shaped_to(permitted):
    with Network(["a", "b", "c"], RATE) as network:
        before = network.read_bytes()
        speeds = [measure_mbit_s(network, "a", "b"), measure_mbit_s(network, "b", "a")]
        after = network.read_bytes()
    assert all(15 < speed < 20 for speed in speeds)
    size = 2.5e6  # one second of the rate
    sent = {host: after[host][0] - before[host][0] for host in after}
    received = {host: after[host][1] - before[host][1] for host in after}
    assert size < sent["a"] < 1.3 * size and size < received["b"] < 1.3 * size
    assert sent["c"] < 0.01 * size


@pytest.mark.cluster
def test_links_are_cut_and_mended_and_slowed_down(permitted):
    with Network(["a", "b"], RATE) as network:
        network.set_rate(read_rate("10mbit"))
        assert 7 < measure_mbit_s(network, "a", "b") < 10
        network.set_link("b", False)
        host = network.address("b").partition(":")[0]
        connect = f"import socket; socket.create_connection(('{host}', 9), 2)"
        child = network.start("a", [sys.executable, "-c", connect], stderr=subprocess.PIPE)
        assert "TimeoutError" in child.stderr.read() or "No route to host" in child.stderr.read()
        network.set_link("b", True)
        assert 7 < measure_mbit_s(network, "a", "b") < 10


@pytest.mark.cluster
def test_programs_on_hosts_can_be_signalled(permitted):
    with Network(["a"], RATE) as network:
        child = network.start("a", ["sleep", "603"])
        pid = network.find_pid(child)
        with open(f"/proc/{pid}/cmdline") as file:
            assert file.read().split("\0")[:2] == ["sleep", "603"]
        os.kill(pid, signal.SIGKILL)
        child.wait(timeout=10)
        with pytest.raises(ProcessLookupError, match="sleep 603 has ended"):
            network.find_pid(child)


@pytest.mark.cluster
def test_leads_nowhere_else(permitted):
    with Network(["a", "b"], RATE) as network:
        child = network.start("a", ["cat", "/proc/self/net/dev"], stdout=subprocess.PIPE)
        devices = {line.partition(":")[0].strip() for line in child.stdout if ":" in line}
    assert {"lo", "eth0"} <= devices
    assert not any(name.startswith(("ens", "enp", "docker", "wl")) for name in devices)


@pytest.mark.cluster
def test_ends_with_everything_on_it(permitted):
    with Network(["a", "b"], RATE) as network:
        child = network.start("a", ["sleep", "602"])
        namespaces = list_namespaces_of(os.getpid())
        assert len(namespaces) == 3
    assert child.poll() is not None and await_end(namespaces)
    assert not os.path.exists(f"/proc/{network._pids['a']}")


@pytest.mark.cluster
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_ends_with_its_owner(permitted, number):
    command = [sys.executable, "-c", OWNER]
    owner = subprocess.Popen(command, cwd=sources.ROOT, stdout=subprocess.PIPE, text=True)
    pids = owner.stdout.readline().split()
    namespaces = {os.readlink(f"/proc/{pid}/ns/net") for pid in pids}
    assert len(namespaces) == 3
    owner.send_signal(number)
    owner.wait()
    owner.stdout.close()
    assert await_end(namespaces)  # and with them whatever ran there


@pytest.mark.cluster
def test_a_part_the_kernel_refuses_is_named(permitted):
    nothing = Rate("0mbit", 0.0)
    with pytest.raises(OSError, match="The kernel refused a part of the network: tc qdisc"), Network(["a"], nothing):
        pass


def test_missing_programs_are_named(monkeypatch):
    monkeypatch.setattr(networks.shutil, "which", lambda name, path=None: None if name == "tc" else f"/bin/{name}")
    with pytest.raises(FileNotFoundError, match=r"Missing: tc\. --loopback"), Network(["a"], RATE):
        pass


def test_missing_rights_are_explained(monkeypatch, tmp_path):
    for name in networks.PROGRAMS:
        (tmp_path / name).write_text("#!/bin/sh\necho 'unshare failed: Operation not permitted' >&2\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(PermissionError, match="need root.*user id.*Operation not permitted.*--loopback") as caught:
        Network(["a"], RATE).__enter__()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("hosts", [[], ["a", "a"], [f"h{i}" for i in range(201)]])
def test_hosts_are_checked(hosts):
    with pytest.raises(ValueError, match="1 to 200 hosts with different names"):
        Network(hosts, RATE)
