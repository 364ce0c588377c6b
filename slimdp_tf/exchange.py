"""Push, merge, pull, adopt: the four verbs of an exchange, per block, as pure functions.

The cluster runs these on variables of workers and servers, `slimdp_tf.simulate` on plain tensors of one process: the
mathematics is the same code. What a worker keeps of a block is a dict: the state of its memory ("anchor", ...), and
"mirror" where the server sends updates to a block that has gone its own way. What both ends hold is `agreed`: "core",
"share", "signature", "round", and "pushed". Where the server sends updates, it keeps a *shadow*: the block as a worker
holds it (as all of them do, unless each is told of its own entries).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import tensorflow as tf

from slimdp_tf.channel import Channel, Parts, joined, stream
from slimdp_tf.method import Method
from slimdp_tf.rules.agreements import sign
from slimdp_tf.types import Edits, Entries, Note, On, Payload, Pieces, State, anywhere, taken, written

_UP, _DOWN = 0, 1


def block_sizes(entries: int, servers: int) -> list[int]:
    """Cuts `entries` into one stretch per server, the first ones the longer; equal to one entry, or to one unit.

    Long stretches consist of units of 16 entries: TensorFlow copies a slice that does not begin on 64 bytes.
    """
    unit = 16 if entries >= 16 * 1024 * servers else 1
    units, rest = divmod(entries, unit)
    sizes = [unit * (units // servers + (server < units % servers)) for server in range(servers)]
    sizes[-1] += rest
    return sizes


@dataclasses.dataclass(frozen=True)
class Change:
    """What an answer changes of a worker's block: entries as they were, as they are to be, and as they were pulled."""

    before: Entries
    after: Entries
    pulled: Entries


@dataclasses.dataclass(frozen=True)
class Exchange:
    """A method applied to blocks of given sizes.

    Args:
        method: the recipe.
        sizes: entries of each block; the concatenation of the blocks is the flattened model.
        seed: the run's seed; every random draw derives from (seed, round, worker, block, use).
        pieces: what each block holds of the model's variables; () takes each block for one column.
    """

    method: Method
    sizes: tuple[int, ...]
    seed: int = 0
    pieces: tuple[Pieces, ...] = ()

    @functools.cached_property
    def _ups(self) -> list[Channel]:
        return self._fitted(self.method.up)

    @functools.cached_property
    def _downs(self) -> list[Channel]:
        return self._fitted(self.method.down)

    def _fitted(self, channel: Channel) -> list[Channel]:
        return [channel.fitted(pieces) for pieces in self.pieces or [((size, 1),) for size in self.sizes]]

    # -- what both ends hold --------------------------------------------------------------------------------------

    def agree(self, keys: list[tf.Tensor], version: tf.Tensor | int, on: On = anywhere) -> list[State]:
        """The keys of every block -> what both ends hold of every block, signed where the block lives."""
        signed = []
        for j, agreed in enumerate(self.method.agreement.agree(keys, list(self.sizes), on)):
            with on(j):
                signed.append(dict(agreed, signature=sign(agreed["core"], version)))
        return signed

    @property
    def lists(self) -> tuple[str, ...]:
        """Names of the lists of keys, i32[any length], among what both ends hold of a block."""
        return self.method.agreement.lists

    def hold(self, core: tf.Tensor, share: tf.Tensor) -> State:
        """What a worker holds of a block, from what it is sent."""
        return self.method.agreement.hold(core, share)

    def refresh(
        self, values: list[tf.Tensor], updates: list[tf.Tensor], on: On, keys: list[tf.Tensor] | None = None
    ) -> list[tf.Tensor]:
        """Weights and mean updates of every block, and their keys until now -> the new keys of every block."""
        return self.method.agreement.refresh(values, updates, on, keys)

    # -- worker ---------------------------------------------------------------------------------------------------

    def init_worker(self, local: tf.Tensor) -> State:
        """The state of a worker that has just taken over the whole block `local`."""
        state = self.method.up.memory.init(local)
        return dict(state, mirror=local) if self._has_mirror else state

    @property
    def _has_mirror(self) -> bool:
        return self.method.down.carries == "update" and not self.method.up.memory.returns

    def push(
        self, block: int, state: State, local: tf.Tensor, agreed: State, draw: tf.Tensor, whole: bool
    ) -> tuple[Payload, tf.Tensor | None, Edits]:
        """What a worker sends: the payload, the entries it has chosen, and the edits of its state (and "local").

        Args:
            block: number of the block.
            state, local: the worker's state of the block and its weights, f32[n].
            agreed: what both ends hold of the block.
            draw: i32[2], `draw(round, worker)`.
            whole: whether every entry is pushed; the choice is made all the same, for the pull.
        """
        up, seed = self._ups[block], self._seed(draw, block, _UP)
        value = None if up.is_blind else up.memory.recall(state, local, None)
        parts = up.choose(value, dict(agreed, local=local), seed)
        index = None if whole else joined(parts)
        wanted = Entries(index, up.memory.recall(state, local, index) if value is None else taken(value, index))
        payload = up.write(parts, wanted.value, seed, whole)
        sent = Entries(index, up.read(payload, parts, self.sizes[block], whole).value)
        if self.method.agreement.period:
            payload["signature.keys"] = agreed["signature"]
        return payload, joined(parts), up.memory.keep(state, local, wanted, sent)

    def adopt(
        self, block: int, state: State, local: tf.Tensor, payload: Payload, agreed: State, draw: tf.Tensor
    ) -> tuple[tf.Tensor, Edits]:
        """What a worker makes of an answer: its new weights, f32[n], and the edits of its state."""
        change, edits = self.take_over(block, state, lambda index: taken(local, index), payload, agreed, draw)
        local = written(local, change.after)
        return local, {**edits, **self.rebase(state, local, change)}

    def take_over(
        self,
        block: int,
        state: State,
        read: Callable[[tf.Tensor | None], tf.Tensor],
        payload: Payload,
        agreed: State,
        draw: tf.Tensor,
    ) -> tuple[Change, Edits]:
        """The first half of `adopt`: what is to change of the worker's weights, and edits of its state.

        Args:
            block, state, payload, agreed, draw: as in `adopt`.
            read: entries i32[k] (None: all) -> the worker's weights there, f32[k].
        """
        down = self._downs[block]
        parts = down.parts_of(payload, agreed, self._seed(draw, block, _DOWN))
        incoming = down.read(payload, parts, self.sizes[block], whole=False)
        before, edits = Entries(incoming.index, read(incoming.index)), {}
        if down.carries == "update":
            held = taken(state["mirror"], incoming.index) if self._has_mirror else before.value
            incoming = Entries(incoming.index, held - incoming.value)
            edits = {"mirror": incoming} if self._has_mirror else {}
        after = Entries(incoming.index, self.method.adopt.adopt(before.value, incoming.value))
        return Change(before, after, incoming), edits

    def rebase(self, state: State, local: tf.Tensor, change: Change) -> Edits:
        """The second half of `adopt`: what becomes of the worker's state now that its weights are `local`, f32[n]."""
        return self.method.up.memory.rebase(state, local, change.before, change.after, change.pulled)

    # -- server ---------------------------------------------------------------------------------------------------

    def up(self, block: int) -> Channel:
        """The method's up channel, as it is for one block."""
        return self._ups[block]

    def parts_of(self, block: int, payload: Payload, agreed: State, draw: tf.Tensor) -> Parts:
        """The entries a worker has chosen, per selector, as the server knows them from its payload."""
        return self._ups[block].parts_of(payload, agreed, self._seed(draw, block, _UP))

    def init_server(self, value: tf.Tensor) -> State:
        """The state beside a block `value`: the merge rule's."""
        return self.method.merge.init(value)

    def init_shadow(self, value: tf.Tensor) -> State:
        """What the server keeps of a worker that holds the block `value`; {} unless it sends updates."""
        return self.method.down.memory.init(value) if self.method.down.carries == "update" else {}

    def receive(self, block: int, payload: Payload, parts: Parts, whole: bool) -> Entries:
        """A worker's payload, and the entries it has chosen -> its update as the server decodes it."""
        return self._ups[block].read(payload, parts, self.sizes[block], whole)

    def together(self, block: int, incoming: list[Entries], draw: tf.Tensor) -> list[Entries]:
        """What `receive` gave of each worker in a round -> their updates, known together; `draw` is of worker -1."""
        return self._ups[block].together(incoming, self._seed(draw, block, _UP))

    def merge(
        self, state: State, value: tf.Tensor, incoming: list[Entries], notes: list[Note]
    ) -> tuple[list[Entries], Edits]:
        """What is to be subtracted from the block, and the edits of the server's state; see `types.Merge`."""
        return self.method.merge.merge(state, value, incoming, notes)

    def answer(
        self, block: int, shadow: State, value: tf.Tensor, agreed: State, draw: tf.Tensor
    ) -> tuple[Payload, Edits]:
        """What a worker pulls after a merge, and the edits of its `shadow`."""
        down, seed = self._downs[block], self._seed(draw, block, _DOWN)
        is_update = down.carries == "update"
        everything = None if down.is_blind else down.memory.recall(shadow, value, None) if is_update else value
        parts = down.choose(everything, agreed, seed)
        index = joined(parts)
        if not is_update:
            return down.write(parts, taken(value, index), seed, whole=False), {}
        wanted = Entries(index, down.memory.recall(shadow, value, index))
        payload = down.write(parts, wanted.value, seed, whole=False)
        sent = down.read(payload, parts, self.sizes[block], whole=False)
        return payload, down.memory.keep(shadow, value, wanted, sent)

    def held_by_worker(self, shadow: State, value: tf.Tensor) -> tf.Tensor:
        """The block a worker takes over when it pulls everything: what it holds in the server's eyes, f32[n]."""
        return shadow["anchor"] if self.method.down.carries == "update" else value

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


def is_nothing(payload: Payload) -> tf.Tensor:
    """Whether a payload has floats and every one of them is zero, bool[]: nothing is to be changed by it."""
    floats = [tensor for tensor in payload.values() if tensor.dtype.is_floating]
    zero = [tf.reduce_all(tf.equal(tensor, tf.zeros([], tensor.dtype))) for tensor in floats]
    return tf.reduce_all(zero) if zero else tf.constant(False)
