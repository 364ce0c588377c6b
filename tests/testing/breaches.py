"""Which tests of a contract a rule breaks."""

from __future__ import annotations

from slimdp_tf.testing import Contract


def find_breaches(contract: type[Contract], *rules, **declared) -> set[str]:
    """Runs every test of the contract on `rules`; `declared` are attributes of the contract. Returns what failed."""
    derived = _derive(contract, rules, declared)
    tests = [name for name in dir(derived) if name.startswith("test_")]
    assert tests
    return {name.removeprefix("test_") for name in tests if _fails(getattr(derived, name))}


def breaks(contract: type[Contract], name: str, *rules, **declared) -> bool:
    """Whether one test of the contract fails on `rules`."""
    return _fails(getattr(_derive(contract, rules, declared), f"test_{name}"))


def _derive(contract, rules, declared) -> Contract:
    return type("Derived", (contract,), {"rules": lambda self: list(rules), **declared})()


def _fails(test) -> bool:
    try:
        test()
    except AssertionError as breach:
        assert str(breach), "a contract fails without a word"
        return True
    except Exception:  # a rule so broken that TensorFlow refuses it fails the user's test as well
        return True
    return False
