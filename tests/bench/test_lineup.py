"""The line-up is read as people write it; mistakes are named before anything runs."""

import pytest

from slimdp_tf.bench import lineup
from slimdp_tf.bench.lineup import list_default, read_contenders
from slimdp_tf.bench.setting import Setting
from tests.bench.small_bench import OWN


def test_methods_and_outside_contenders():
    plump, mine, tf_ps = read_contenders("plump, mine=slim(alpha=0.1, beta=0.05), tf_ps")
    assert [c.label for c in (plump, mine, tf_ps)] == ["plump", "mine", "tf_ps"]
    assert [c.is_outside for c in (plump, mine, tf_ps)] == [False, False, True]
    assert mine.text == "slim(alpha=0.1, beta=0.05)"
    chief = mine.launch(Setting(2, 1))[-1]
    assert (chief.host, chief.is_reporting) == ("chief", True)
    assert '{"method": "slim", "options": {"alpha": 0.1, "beta": 0.05}}' in chief.command


def test_ones_own_beside_them_or_alone():
    assert [c.label for c in read_contenders("plump", [OWN])] == ["plump", "launch"]
    (own,) = read_contenders("", [f"mine={OWN}"])
    assert (own.label, own.text, own.is_outside) == ("mine", OWN, True)
    assert [program.host for program in own.launch(Setting(1, 1))] == ["ps0", "worker0"]


@pytest.mark.parametrize(
    ("text", "own", "kind", "message"),
    [
        (
            "plumb",
            [],
            ValueError,
            "Unknown contender 'plumb'. Known: plump, .*_localsgd. Did you mean 'plump'.*own",
        ),
        ("slim(alpah=0.1)", [], ValueError, "Unknown option of slim 'alpah'. Known: alpha"),
        ("slim(alpha=2)", [], ValueError, "alpha must be"),
        ("torch_powersgd(ranks=2)", [], ValueError, "Unknown option of torch_powersgd 'ranks'. Known: rank, start"),
        ("tf_ps, tf_ps", [], ValueError, "Received twice: tf_ps"),
        ("launch=plump", [OWN], ValueError, "Received twice: launch"),
        ("", [], ValueError, "at least one"),
        ("", ["mine"], ValueError, "module:function or label=module:function. Received: 'mine'"),
        ("", ["tests.bench.own_contender:lunch"], ValueError, "must hold a function 'lunch'"),
        ("", ["no_such_module:launch"], ImportError, "no_such_module"),
    ],
)
def test_mistakes(text, own, kind, message):
    with pytest.raises(kind, match=message):
        read_contenders(text, own)


def test_the_default_is_everything_that_can_run():
    with_torch, without = (read_contenders(list_default(has_torch)) for has_torch in (True, False))
    assert [c.label for c in without if c.is_outside] == ["tf_ps"]
    assert [c.label for c in with_torch if c.is_outside] == list(lineup.OUTSIDE)
    assert {"plump", "plump4", "quant", "slim"} <= {c.label for c in without}
    assert set(lineup.NEEDS_TORCH) == set(lineup.OUTSIDE) - {"tf_ps"}
