"""Push, merge, pull, adopt: the four verbs of an exchange, per block, as pure functions.

The cluster runs these on variables of workers and servers, `slimdp_tf.simulate` on plain tensors of one process: the
mathematics is the same code. What a worker keeps of a block is a dict: the state of its memory ("anchor", ...), and
"mirror" where the server sends updates. What both ends hold is `agreed`: "core", "share", "signature", and "pushed".
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from slimdp_tf.channel import joined, stream
from slimdp_tf.method import Method
from slimdp_tf.rules.agreements import sign
from slimdp_tf.types import Edits, Entries, Note, On, Payload, State, anywhere, taken, written

_UP, _DOWN = 0, 1


def block_sizes(entries: int, servers: int) -> list[int]:
    """Cuts `entries` into one stretch per server, equal to one entry; the first stretches are the longer ones."""
    return [entries // servers + (server < entries % servers) for server in range(servers)]


@dataclasses.dataclass(frozen=True)
class Exchange:
    """A method applied to blocks of given sizes.

    Args:
        method: the recipe.
        sizes: entries of each block; the concatenation of the blocks is the flattened model.
        seed: the run's seed; every random draw derives from (seed, round, worker, block, use).
    """

    method: Method
    sizes: tuple[int, ...]
    seed: int = 0

    # -- what both ends hold --------------------------------------------------------------------------------------

    def agree(self, keys: list[tf.Tensor], version: tf.Tensor | int, on: On = anywhere) -> list[State]:
        """The keys of every block -> what both ends hold of every block, signed where the block lives."""
        signed = []
        for j, agreed in enumerate(self.method.agreement.agree(keys, list(self.sizes), on)):
            with on(j):
                signed.append(dict(agreed, signature=sign(agreed["core"], version)))
        return signed

    def refresh(
        self, values: list[tf.Tensor], updates: list[tf.Tensor], on: On, keys: list[tf.Tensor] | None = None
    ) -> list[tf.Tensor]:
        """Weights and mean updates of every block, and their keys until now -> the new keys of every block."""
        return self.method.agreement.refresh(values, updates, on, keys)

    # -- worker ---------------------------------------------------------------------------------------------------

    def init_worker(self, local: tf.Tensor) -> State:
        """The state of a worker that has just taken over the whole block `local`."""
        state = self.method.up.memory.init(local)
        return dict(state, mirror=local) if self.method.down.carries == "update" else state

    def push(
        self, block: int, state: State, local: tf.Tensor, agreed: State, draw: tf.Tensor, whole: bool
    ) -> tuple[Payload, tf.Tensor | None, Edits]:
        """What a worker sends: the payload, the entries it has chosen, and the edits of its state.

        Args:
            block: number of the block.
            state, local: the worker's state of the block and its weights, f32[n].
            agreed: what both ends hold of the block.
            draw: i32[2], `draw(round, worker)`.
            whole: whether every entry is pushed; the choice is made all the same, for the pull.
        """
        up, seed = self.method.up, self._seed(draw, block, _UP)
        value = None if up.is_blind else up.memory.recall(state, local, None)
        parts = up.choose(value, agreed, seed)
        index = None if whole else joined(parts)
        wanted = Entries(index, up.memory.recall(state, local, index))
        payload = up.write(parts, wanted.value, seed, whole)
        sent = Entries(index, up.read(payload, parts, self.sizes[block], whole).value)
        if self.method.agreement.period:
            payload["signature.keys"] = agreed["signature"]
        return payload, joined(parts), up.memory.keep(state, wanted, sent)

    def adopt(
        self, block: int, state: State, local: tf.Tensor, payload: Payload, agreed: State, draw: tf.Tensor
    ) -> tuple[tf.Tensor, Edits]:
        """What a worker makes of an answer: its new weights, f32[n], and the edits of its state."""
        down = self.method.down
        parts = down.parts_of(payload, agreed, self._seed(draw, block, _DOWN))
        incoming = down.read(payload, parts, self.sizes[block], whole=False)
        edits = {}
        if down.carries == "update":
            incoming = Entries(incoming.index, taken(state["mirror"], incoming.index) - incoming.value)
            edits["mirror"] = incoming
        before = Entries(incoming.index, taken(local, incoming.index))
        after = Entries(incoming.index, self.method.adopt.adopt(before.value, incoming.value))
        local = written(local, after)
        return local, {**edits, **self.method.up.memory.rebase(state, local, before, after)}

    # -- server ---------------------------------------------------------------------------------------------------

    def chosen(self, block: int, payload: Payload, agreed: State, draw: tf.Tensor) -> tf.Tensor | None:
        """The entries a worker has chosen, as the server knows them from its payload, i32[k]."""
        return joined(self.method.up.parts_of(payload, agreed, self._seed(draw, block, _UP)))

    def init_server(self, value: tf.Tensor) -> State:
        """The state beside a block `value`: the merge rule's, and "shadow.*" where the server sends updates."""
        state = self.method.merge.init(value)
        if self.method.down.carries == "update":
            state.update({"shadow." + name: t for name, t in self.method.down.memory.init(value).items()})
        return state

    def receive(self, block: int, payload: Payload, agreed: State, draw: tf.Tensor, whole: bool) -> Entries:
        """A worker's payload -> its update as the server decodes it."""
        up = self.method.up
        parts = up.parts_of(payload, agreed, self._seed(draw, block, _UP))
        return up.read(payload, parts, self.sizes[block], whole)

    def merge(
        self, state: State, value: tf.Tensor, incoming: list[Entries], notes: list[Note]
    ) -> tuple[list[Entries], Edits]:
        """What is to be subtracted from the block, and the edits of the server's state; see `types.Merge`."""
        return self.method.merge.merge(state, value, incoming, notes)

    def answer(
        self, block: int, state: State, value: tf.Tensor, agreed: State, draw: tf.Tensor
    ) -> tuple[Payload, Edits]:
        """What a worker pulls after a merge, and the edits of the server's state."""
        down, seed = self.method.down, self._seed(draw, block, _DOWN)
        parts = down.choose(None if down.is_blind else value, agreed, seed)
        index = joined(parts)
        if down.carries == "weights":
            return down.write(parts, taken(value, index), seed, whole=False), {}
        shadow = {name[len("shadow.") :]: tensor for name, tensor in state.items() if name.startswith("shadow.")}
        wanted = Entries(index, down.memory.recall(shadow, value, index))
        payload = down.write(parts, wanted.value, seed, whole=False)
        edits = down.memory.keep(shadow, wanted, down.read(payload, parts, self.sizes[block], whole=False))
        return payload, {"shadow." + name: edit for name, edit in edits.items()}

    def held_by_workers(self, state: State, value: tf.Tensor) -> tf.Tensor:
        """The block a worker takes over when it pulls everything: what the others hold already, f32[n]."""
        return state["shadow.anchor"] if self.method.down.carries == "update" else value

    # -- randomness -----------------------------------------------------------------------------------------------

    def draw(self, round_number: tf.Tensor | int, worker: tf.Tensor | int) -> tf.Tensor:
        """The seed of one worker in one round, i32[2]. An answer that all workers share is drawn as worker -1."""
        seed = stream(tf.constant([self.seed & 0x7FFFFFFF, self.seed >> 31], tf.int32), round_number)
        return stream(seed, worker)

    def _seed(self, draw: tf.Tensor, block: int, direction: int) -> tf.Tensor:
        return stream(draw, 2 * block + direction)


def payload_bytes(payload: Payload) -> tuple[tf.Tensor, tf.Tensor]:
    """Bytes of a payload's tensors, i64[] each: (values, keys)."""
    values, keys = tf.zeros([], tf.int64), tf.zeros([], tf.int64)
    for name, tensor in payload.items():
        size = tf.size(tensor, tf.int64) * tensor.dtype.size
        if name.endswith(".keys"):
            keys += size
        else:
            values += size
    return values, keys


def is_finite(payload: Payload) -> tf.Tensor:
    """Whether every float of a payload is finite, bool[]."""
    floats = [tensor for tensor in payload.values() if tensor.dtype.is_floating]
    return tf.reduce_all([tf.constant(True)] + [tf.reduce_all(tf.math.is_finite(tensor)) for tensor in floats])
