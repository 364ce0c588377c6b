"""Blocks whose servers fold every push by itself, when it arrives (pacing "async").

What is merged, answered and told is that of "the worker here", so one trace does for all workers. Two versions of the
keys are kept, by the parity of their number: what a worker was told with its last answer is not overwritten before the
next core but one is chosen, which waits for a whole update of every live worker.
"""

from __future__ import annotations

import tensorflow as tf

from slimdp_tf.arrival import fold_one
from slimdp_tf.channel import joined
from slimdp_tf.distribute.local_variable import Shelf, Vector
from slimdp_tf.distribute.shared import Shared
from slimdp_tf.distribute.slots import Block, Choice, keys_of
from slimdp_tf.inspection import ABSENT, inspect
from slimdp_tf.types import Entries, Note, State


class ArrivingBlock(Block):
    """One block of the model on its server; see `Block`.

    Beside what that holds: per worker the round that was folded last, the version of the keys it was told, and what it
    chose and reported then; the second version of the keys; and what whole pushes did since the core was chosen.
    """

    def __init__(self, exchange, number, device, workers, templates):
        super().__init__(exchange, number, device, workers, templates)
        with tf.device(device):
            self.folded_here = Shelf([tf.Variable(tf.constant(-1, tf.int64)) for _ in range(workers)])
            self.told_here = Shelf([tf.Variable(tf.zeros([], tf.int64)) for _ in range(workers)])
            self.chosen = [Vector(tf.int32) for _ in range(workers)]
            self.noted = [tf.Variable(tf.zeros([2])) for _ in range(workers)]
            self.version = tf.Variable(tf.zeros([], tf.int64))
            others = {name: Vector(tf.int32) for name in exchange.lists}
            share, signature = tf.Variable(tf.zeros([4], tf.int64)), tf.Variable(tf.zeros([3], tf.int64))
            is_refreshed = exchange.method.agreement.period > 0
            self.waiting = tf.Variable(tf.zeros([exchange.sizes[number]] if is_refreshed else [0]))
        self._books = [(self.lists, self.share, self.signature), (others, share, signature)]
        self.chosen_here, self.noted_here = Shelf(self.chosen), Shelf(self.noted)
        if self.answer_here is None:  # one worker
            self.answer_here = {name: Shelf([vector]) for name, vector in self.answers[0].items()}
        self.shadow_here = {name: Shelf([s[name] for s in self.shadows]) for name in self.shadows[0]}

    # -- keys, in two versions ------------------------------------------------------------------------------------

    def book(self, version: tf.Tensor) -> State:
        """What the agreement of a version holds."""

        def read(book):
            lists, share, signature = book
            held = {name: vector.read() for name, vector in lists.items()}
            return {**held, "share": share.read_value(), "signature": signature.read_value()}

        if not self.exchange.method.agreement.period:
            return read(self._books[0])
        even, odd = self._books
        return tf.cond(tf.equal(version % 2, 0), lambda: read(even), lambda: read(odd))

    @property
    def agreed(self) -> State:
        with tf.device(self.device):
            return self.book(self.version.read_value())

    @property
    def agreed_here(self) -> State:
        with tf.device(self.device):
            return self.book(self.told_here.read())

    def read_signature(self) -> tf.Tensor:
        return self.agreed_here["signature"]

    def read_keys(self) -> State:
        told = self.agreed_here
        return {name: told[name] for name in ("core", "share")}

    def adopt_keys(self, agreed: State) -> None:
        """Puts a new agreement in the place of the last but one."""

        def write(book):
            lists, share, signature = book
            for name, vector in lists.items():
                vector.write(agreed[name])
            share.assign(agreed["share"])
            signature.assign(agreed["signature"])
            return tf.zeros([])

        with tf.device(self.device):
            version, (even, odd) = agreed["signature"][0], self._books
            tf.cond(tf.equal(version % 2, 0), lambda: write(even), lambda: write(odd))
            self.version.assign(version)
            self.waiting.assign(tf.zeros_like(self.waiting))

    def renew_shadow(self) -> None:
        """The worker here is back and takes over the block as it is now."""
        with tf.device(self.device):
            for name, tensor in self.exchange.init_shadow(self.value.read_value()).items():
                self.shadow_here[name].write(tensor)

    # -- the push of the worker here ------------------------------------------------------------------------------

    def choose_here(self, number: tf.Tensor, worker: tf.Tensor) -> Choice:
        """The entries that it chose for its round `number`, and whether its keys can be meant."""
        if self.exchange.method.up.is_dense:
            return [None], tf.constant(True)
        with tf.device(self.device):
            draw = self.exchange.draw(tf.cast(number, tf.int32), worker)
            return self._chosen(keys_of(self.slot_here), self.agreed_here, draw)

    def inspect_here(self, number: tf.Tensor, whole: bool, choice: Choice) -> tf.Tensor:
        """What may become of the push of its round `number`, i32[]."""
        with tf.device(self.device):
            payload, signature = self._payload(self.slot_here, whole), self.agreed_here["signature"]
            verdict = inspect(self.exchange, self.number, payload, choice, signature, whole)
            is_new = tf.equal(self.tag_here.read(), number) & (number > self.folded_here.read())
            return tf.where(is_new, verdict, ABSENT)

    def fold_here(self, number: tf.Tensor, worker: tf.Tensor, whole: bool, others: tf.Tensor, choice: Choice) -> None:
        """Folds the push, and makes ready what the worker is to pull.

        Args:
            number, worker: the worker's round, and which worker it is.
            whole: whether it pushed every entry.
            others: bool[workers], who else takes part.
            choice: of `choose_here`.
        """
        exchange, is_dense = self.exchange, self.exchange.method.up.is_dense
        with tf.device(self.device):
            worker_round, (parts, _) = tf.cast(number, tf.int32), choice
            agreed = dict(self.agreed_here, round=worker_round)
            draw = exchange.draw(worker_round, worker)
            index, value = self._received(self._payload(self.slot_here, whole), parts, whole)
            arrived = Entries(None if whole or is_dense else index, value)
            if not is_dense:
                self.chosen_here.write(joined(parts))
            self._fold(arrived, whole, tf.identity(others))
            held, value = dict(agreed, pushed=joined(parts)), self.value.read_value()
            shadow = {name: shelf.read() for name, shelf in self.shadow_here.items()}
            payload, edits = exchange.answer(self.number, shadow, value, held, draw)
            for name, tensor in payload.items():
                self.answer_here[name].write(tensor)
            for name, edit in edits.items():
                self.shadow_here[name].write(edit)
            self.told_here.write(self.version.read_value())
            self.folded_here.write(number)

    def _fold(self, arrived: Entries, whole: bool, others: tf.Tensor) -> None:
        exchange, before = self.exchange, self.value.read_value()
        state = {name: variable.read_value() for name, variable in self.state.items()}
        chosen = [None if exchange.method.up.is_dense else vector.read() for vector in self.chosen]
        notes = [_note(variable.read_value(), others[w]) for w, variable in enumerate(self.noted)]
        numbers = self.note_here.read()
        self.noted_here.write(numbers)
        note = _note(numbers, tf.constant(True))
        increments, edits = fold_one(exchange, state, before, arrived, note, chosen, notes)
        self._apply(increments, self.state, edits)
        if whole:
            self.waiting.assign_add(before - self.value.read_value())


def _note(numbers: tf.Tensor, present: tf.Tensor) -> Note:
    return Note(present, numbers[0], tf.cast(numbers[1], tf.int32))


class ArrivingShared(Shared):
    """Variables whose blocks fold every push by itself; see `Shared`."""

    make_block = ArrivingBlock

    def measure_drift(self) -> tuple[tf.Tensor, tf.Tensor]:
        """|w - z|^2 and |z|^2 of the worker here over all blocks, f32[] each; z is its anchor."""
        local = self.layout.flatten([v.value() for v in self.layout.variables])
        anchors = [self.state(j)["anchor"] for j in range(len(self.blocks))]
        drift = [tf.reduce_sum(tf.square(w - z)) for w, z in zip(local, anchors)]
        return tf.add_n(drift), tf.add_n([tf.reduce_sum(tf.square(z)) for z in anchors])

    def choose_here(self, number: tf.Tensor, worker: tf.Tensor) -> list[Choice]:
        """What the worker here chose for a push, per block; see `ArrivingBlock.choose_here`."""
        return [block.choose_here(number, worker) for block in self.blocks]

    def inspect_here(self, number: tf.Tensor, whole: bool, choices: list[Choice]) -> list[tf.Tensor]:
        """What may become of this push, per block, i32[]."""
        return [block.inspect_here(number, whole, choice) for block, choice in zip(self.blocks, choices)]

    def fold_here(
        self, number: tf.Tensor, worker: tf.Tensor, whole: bool, others: tf.Tensor, choices: list[Choice]
    ) -> None:
        """Folds it on every server; see `ArrivingBlock.fold_here`."""
        for block, choice in zip(self.blocks, choices):
            block.fold_here(number, worker, whole, others, choice)

    def choose_keys(self, version: tf.Tensor) -> None:
        """Chooses new keys by what whole pushes did since they were chosen last; the worker here is told."""
        values, updates, keys = [], [], []
        for block in self.blocks:
            with tf.device(block.device):
                values.append(block.value.read_value())
                updates.append(block.waiting.read_value())
            keys.append(block.agreed["core"])
        self.set_keys(self.exchange.refresh(values, updates, self._on, keys), version)
        for block in self.blocks:
            with tf.device(block.device):
                block.told_here.write(version)
