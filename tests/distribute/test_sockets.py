"""Connections of this process that notice when the other end has given them up."""

import contextlib
import socket
import time

import pytest

from slimdp_tf.distribute import sockets


@pytest.fixture
def pair():
    """Two ends of a connection, and the port that one of them listens at."""
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as ends:
        client = ends.enter_context(socket.create_connection(listener.getsockname(), timeout=5.0))
        server = ends.enter_context(listener.accept()[0])
        yield client, server, listener.getsockname()[1]


def options(one: socket.socket) -> list[int]:
    names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    is_kept = one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    return [is_kept, *(one.getsockopt(socket.IPPROTO_TCP, name) for name in names)]


def test_both_ends_of_a_connection_at_a_port_of_the_cluster_are_watched_over_and_no_other(pair):
    client, server, port = pair
    before = options(client)
    assert before[0] == 0 and sockets.keep_alive(frozenset([port + 1 if port < 65535 else 1])) == 0
    assert options(client) == options(server) == before
    assert sockets.keep_alive(frozenset([port])) == 2  # not the one that listens
    assert options(client) == options(server) == [1, 5, 5, 4]
    client.sendall(b"x")
    assert server.recv(1) == b"x"  # it is still its owner's


def test_new_connections_are_found(pair, monkeypatch):
    client, server, port = pair
    monkeypatch.setattr(sockets, "_ports", frozenset())
    monkeypatch.setattr(sockets, "_LOOK_S", 0.01)
    sockets.watch_over([])  # nobody to watch over
    sockets.watch_over([f"127.0.0.1:{port}", f"[::1]:{port}"])
    give_up = time.monotonic() + 10.0
    while options(server)[0] == 0 and time.monotonic() < give_up:
        time.sleep(0.01)
    assert options(client) == options(server) == [1, 5, 5, 4]


def test_what_is_borrowed_is_given_back(pair):
    client, _, port = pair
    with sockets.borrowed(lambda one: one.getsockname() == client.getsockname()) as found:
        assert [one.fileno() for one in found] == [client.fileno()]
    client.sendall(b"x")
    with sockets.borrowed(lambda one: bool(one.getpeername())) as found:
        assert {one.getsockname()[1] for one in found if one.getsockname()[1] == port} == {port}  # no listener
