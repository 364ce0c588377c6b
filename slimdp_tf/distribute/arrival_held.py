"""What servers hold where every worker has rounds of its own (pacing "async"); see `held.py`."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from slimdp_tf.distribute.arrival_slots import ArrivingBlock
from slimdp_tf.distribute.held import Held
from slimdp_tf.distribute.joining import Arrays
from slimdp_tf.distribute.shared import Shared
from slimdp_tf.types import State


class ArrivalHeld(Held):
    """As `Held`, with both versions of the keys, what whole pushes did since the last, and what is known of each
    worker: the version it was told, the entries of its last push, and what it reported then."""

    def _fresh(self, block: ArrivingBlock, value: np.ndarray) -> Arrays:
        return {**super()._fresh(block, value), **{name: np.zeros_like(value) for name in _waiting(block)}}

    def _lasting(self, block: ArrivingBlock) -> dict[str, tf.Variable]:
        return {**super()._lasting(block), **_waiting(block)}

    def _lists(self, block: ArrivingBlock) -> State:
        version = block.version.read_value()
        chosen = {f"chosen/{k}": vector.read() for k, vector in enumerate(block.chosen)}
        return {"core": block.book(version)["core"], "core_before": block.book(version - 1)["core"], **chosen}

    def _facts(self, block: ArrivingBlock) -> State:
        with tf.device(block.device):
            told = {f"told/{k}": v.read_value() for k, v in enumerate(block.told_here.variables)}
            noted = {f"noted/{k}": v.read_value() for k, v in enumerate(block.noted)}
            return {"version": block.version.read_value(), **told, **noted}

    def _told(self, own: Arrays) -> tuple[Arrays, Arrays]:
        lists, facts = super()._told(own)
        lists["core_before"] = own["core_before"]
        for k in range(len(self.cache.workers)):  # who is new is told the keys of now
            lists[f"chosen/{k}"] = own.get(f"chosen/{k}", np.zeros([0], np.int64))
            facts[f"told/{k}"] = own.get(f"told/{k}", own["version"])
            facts[f"noted/{k}"] = own.get(f"noted/{k}", np.zeros([2], np.float32))
        return lists, facts

    def _put_told(self, shared: Shared, lists: list[State], facts: State) -> None:
        shared.set_keys([of_block["core_before"] for of_block in lists], facts["version"] - 1)
        super()._put_told(shared, lists, facts)
        for block, of_block in zip(shared.blocks, lists):
            with tf.device(block.device):
                for k, (chosen, noted) in enumerate(zip(block.chosen, block.noted)):
                    chosen.write(of_block[f"chosen/{k}"])
                    noted.assign(facts[f"noted/{k}"])
                    block.told_here.variables[k].assign(facts[f"told/{k}"])
                    block.folded_here.variables[k].assign(tf.constant(-1, tf.int64))


def _waiting(block: ArrivingBlock) -> dict[str, tf.Variable]:
    """What whole pushes did since the core was chosen, where one is chosen."""
    return {"waiting": block.waiting} if block.exchange.method.agreement.period else {}
