"""Methods that do not wait for the last workers."""

from __future__ import annotations

import pytest

from slimdp_tf import methods
from slimdp_tf.methods.quorums import backup_workers, k_sync
from slimdp_tf.rules.merges import Average
from slimdp_tf.rules.server_steps import BlockMomentum


def test_are_composed():
    assert (backup_workers().spare, backup_workers().merge, backup_workers(2, p=3).p) == (1, Average(), 3)
    assert k_sync(spare=2).spare == 2
    assert k_sync(mu=0.5, rate=0.5).merge == BlockMomentum(Average(), 0.5, 0.5)
    assert methods.plump().spare == 0


def test_refuse():
    with pytest.raises(ValueError, match="spare, in workers, must be an integer of at least 0. Received: -1"):
        backup_workers(b=-1)
    with pytest.raises(ValueError, match="'sync' for backup_workers: it has rounds that spare=1 workers may miss"):
        backup_workers(pacing="async")
    with pytest.raises(ValueError, match="momentum must be a number within"):
        k_sync(mu=1.0)
