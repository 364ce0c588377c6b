"""Updates that are not finite: raised after the round, passed over, or gone back from."""

import pytest

from slimdp_tf.distribute.refusals import NonFiniteUpdateError, Refusals

NAMES = ["worker 0 at a:1", "worker 1 at b:1"]


def test_is_raised_once_and_names_the_worker():
    refusals = Refusals("raise", NAMES)
    refusals.begin(has_snapshots=False)
    refusals.note(7, [1])
    with pytest.raises(NonFiniteUpdateError, match="update of round 7 from worker 1 at b:1 is not finite"):
        refusals.raise_last()
    refusals.raise_last()
    refusals.note(8, [0])
    refusals.begin(has_snapshots=False)
    refusals.raise_last()


@pytest.mark.parametrize(("kind", "wants_rollback"), [("skip", False), ("rollback", True)])
def test_others_are_not_raised(kind, wants_rollback):
    refusals = Refusals(kind, NAMES)
    refusals.note(7, [0, 1])
    refusals.raise_last()
    assert refusals.wants_rollback is wants_rollback
    refusals.begin(has_snapshots=True)
    assert not refusals.wants_rollback


def test_there_must_be_something_to_go_back_to():
    with pytest.raises(ValueError, match="needs snapshots to go back to: slimdp_tf.Snapshots.*Received: neither"):
        Refusals("rollback", NAMES).begin(has_snapshots=False)
