"""The contract of agreements finds broken ones."""

from __future__ import annotations

import dataclasses

import pytest
import tensorflow as tf

from slimdp_tf.rules.agreements import Nothing, SignificantCore
from slimdp_tf.testing import AgreementContract
from slimdp_tf.types import anywhere
from tests.testing.breaches import breaks, find_breaches


class PerBlock(SignificantCore):
    """Ranks every block by itself."""

    def refresh(self, values, updates, on):
        return [super(PerBlock, self).refresh([v], [u], on)[0] for v, u in zip(values, updates)]


class TiesToTheLast(SignificantCore):
    def refresh(self, values, updates, on):
        turned = super().refresh([v[::-1] for v in values], [u[::-1] for u in updates], on)
        return [tf.sort(tf.shape(v)[0] - 1 - keys) for v, keys in zip(values, turned)]


class Unsorted(SignificantCore):
    def refresh(self, values, updates, on):
        return [keys[::-1] for keys in super().refresh(values, updates, on)]


class ForgetsTheOthers(SignificantCore):
    """Tells every block that it stands alone."""

    def agree(self, keys, sizes, on=anywhere):
        return [super(ForgetsTheOthers, self).agree([k], [s])[0] for k, s in zip(keys, sizes)]


@dataclasses.dataclass(frozen=True)
class Sometimes(Nothing):
    period = 0.5


@pytest.mark.slow
def test_finds_what_depends_on_the_cut():
    name = "keys_are_the_same_however_the_model_is_cut"
    assert find_breaches(AgreementContract, PerBlock(0.25, 5)) == {name}
    assert breaks(AgreementContract, name, TiesToTheLast(0.25, 5))
    assert not breaks(AgreementContract, name, PerBlock(0.25, 5), is_global=False)


def test_finds_keys_that_are_not_ascending():
    assert breaks(AgreementContract, "keys_are_ascending_positions_of_their_block", Unsorted(0.25, 5))


def test_finds_a_wrong_share():
    assert breaks(AgreementContract, "tells_every_block_its_share", ForgetsTheOthers(0.25, 5))


def test_finds_a_period_that_is_none():
    assert find_breaches(AgreementContract, Sometimes()) == {"says_when"}
