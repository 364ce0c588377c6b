"""The contract of memories finds broken ones."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from slimdp_tf.rules.memories import Carry, Forget
from slimdp_tf.rules.residuals import Residual
from slimdp_tf.testing import MemoryContract
from slimdp_tf.types import Entries, taken
from tests.testing.breaches import breaks, find_breaches


class LosesAtTheCodec(Carry):
    """Moves the anchor by what was wanted, not by what arrived."""

    def keep(self, state, local, wanted, sent):
        return super().keep(state, local, sent, wanted)


class LosesAtThePull(Carry):
    def rebase(self, state, local, before, after, pulled):
        return {"anchor": after}


class CountsThePull(Carry):
    """Takes what was pulled for training."""

    def rebase(self, state, local, before, after, pulled):
        return {}


class Ascends(Carry):
    def recall(self, state, local, index):
        return taken(local, index) - taken(state["anchor"], index)


class ReturnsAndLeaves(Residual):
    """Takes the update into the residual, and leaves it in the weights."""

    def keep(self, state, local, wanted, sent):
        return {**super().keep(state, local, wanted, sent), "local": local}


class Grows(Carry):
    def keep(self, state, local, wanted, sent):
        return {"anchor": tf.concat([state["anchor"], [0.0]], 0)}


@dataclasses.dataclass(frozen=True)
class Remembers(Carry):
    """Keeps state of its own: what is traced knows only the first."""

    seen: list = dataclasses.field(default_factory=list)

    def keep(self, state, local, wanted, sent):
        self.seen.append(1)
        return {"anchor": Entries(sent.index, taken(state["anchor"], sent.index) - sent.value * float(len(self.seen)))}


def test_finds_what_is_lost():
    for rule in (Forget(), LosesAtTheCodec(), LosesAtThePull(), CountsThePull(), ReturnsAndLeaves()):
        assert breaks(MemoryContract, "sent_and_kept_is_recalled", rule), rule
    # It is the only thing that it breaks.
    assert find_breaches(MemoryContract, LosesAtTheCodec()) == {"sent_and_kept_is_recalled"}


def test_finds_the_wrong_sign():
    assert breaks(MemoryContract, "recalls_what_was_done", Ascends())


def test_finds_a_state_that_changes_its_shape():
    assert breaks(MemoryContract, "keeps_shapes_and_dtypes", Grows())


def test_finds_a_state_of_its_own():
    assert breaks(MemoryContract, "traced_and_eager_agree", Remembers())
