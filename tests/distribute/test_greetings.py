"""A server that greets is there; a port that only accepts says nothing of the task behind it."""

import time

from slimdp_tf.distribute.greetings import find_silent, greets
from tests.distribute.ports import free_address, greeting, listening


def test_a_server_that_greets_is_there():
    with greeting() as port:
        assert greets(f"127.0.0.1:{port}")
    assert not greets(f"127.0.0.1:{port}")


def test_a_port_that_only_accepts_is_not_enough():
    with listening() as port:
        started = time.monotonic()
        assert not greets(f"127.0.0.1:{port}", 0.2)
        assert 0.2 <= time.monotonic() - started < 2.0


def test_what_is_no_address_does_not_greet():
    assert not greets("127.0.0.1:none")
    assert not greets("no such host:1")


def test_those_that_are_silent_are_found_at_once():
    missing = free_address()
    with greeting() as there, listening() as one, listening() as two, listening() as three:
        tasks = {str(port): f"127.0.0.1:{port}" for port in (one, there, two, three)} | {"missing": missing}
        started = time.monotonic()
        assert list(find_silent(tasks)) == [str(one), str(two), str(three), "missing"]
        assert time.monotonic() - started < 2.5  # a second each
