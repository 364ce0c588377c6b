"""Which rounds a method runs in."""

import pytest

from slimdp_tf import methods
from slimdp_tf.distribute.arrivals import Arrivals
from slimdp_tf.distribute.overlapped import Overlapped
from slimdp_tf.distribute.pacings import rounds_for
from slimdp_tf.distribute.quorum import Quorum
from slimdp_tf.distribute.rounds import Rounds


def test_each_method_has_its_rounds():
    assert rounds_for(methods.slim(), False) is Rounds
    assert rounds_for(methods.slim(), True) is Overlapped
    assert rounds_for(methods.slim(pacing="async"), False) is Arrivals
    assert rounds_for(methods.backup_workers(1), False) is Quorum


@pytest.mark.parametrize("method", [methods.plump(pacing="async"), methods.backup_workers(1)], ids=lambda m: m.name)
def test_overlap_is_for_workers_in_step(method):
    with pytest.raises(ValueError, match="overlap=True needs a method whose workers all keep in step"):
        rounds_for(method, True)
