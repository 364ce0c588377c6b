"""What lives on the servers: the blocks, one slot per worker for its push, one shelf per worker for its pull.

A push stores: it overwrites the worker's slot and tags it with the round, so a push that is repeated counts once.
A merge folds: it takes the slots tagged with its round, in worker order, once. What a worker is to pull is made ready
by the merge, so a pull reads and changes nothing.
"""

from __future__ import annotations

import tensorflow as tf

from slimdp_tf.distribute.local_variable import Shelf, Vector, write_handle
from slimdp_tf.exchange import Exchange, is_finite
from slimdp_tf.types import Edits, Entries, Note, Payload, State

ABSENT, MERGED, NOT_FINITE, WRONG_SIGNATURE = range(4)  # what became of a worker's push


class Block:
    """One block of the model on its server.

    Args:
        exchange: the method, with the sizes of all blocks.
        number: which block this is.
        device: where it lives.
        workers: how many slots it has.
        templates: empty payloads of a push (ordinary and whole) and of an answer, which name the slots' tensors.
    """

    def __init__(self, exchange: Exchange, number: int, device: str, workers: int, templates: tuple[Payload, Payload]):
        self.exchange, self.number, self.device = exchange, number, device
        pushed, answered = templates
        with tf.device(device):
            size = exchange.sizes[number]
            self.value = tf.Variable(tf.zeros([size]), trainable=False)
            self.state = {name: tf.Variable(t) for name, t in exchange.init_server(tf.zeros([size])).items()}
            self.core = Vector(tf.int32)
            self.share = tf.Variable(tf.zeros([4], tf.int64))
            self.signature = tf.Variable(tf.zeros([3], tf.int64))
            self.merged = tf.Variable(tf.constant(-1, tf.int64))
            self.slots = [{name: Vector(t.dtype) for name, t in pushed.items()} for _ in range(workers)]
            self.tags = [tf.Variable(tf.constant(-1, tf.int64)) for _ in range(workers)]
            self.notes = [tf.Variable(tf.zeros([2])) for _ in range(workers)]
            answers = 1 if exchange.method.down.is_shared else workers
            zeros = tf.zeros([size])
            self.shadows = [{n: tf.Variable(t) for n, t in exchange.init_shadow(zeros).items()} for _ in range(answers)]
            self.answers = [{name: Vector(t.dtype) for name, t in answered.items()} for _ in range(answers)]
        self.slot_here = {name: Shelf([slot[name] for slot in self.slots]) for name in pushed}
        self.tag_here, self.note_here = Shelf(self.tags), Shelf(self.notes)
        self.answer_here = {name: Shelf([a[name] for a in self.answers]) for name in answered} if answers > 1 else None
        self.held_here = Shelf([s["anchor"] for s in self.shadows]) if self.shadows[0] and answers > 1 else None

    @property
    def agreed(self) -> State:
        """What the server holds of the agreement on this block."""
        return {"core": self.core.read(), "share": self.share.read_value(), "signature": self.signature}

    # -- called in a worker's function ----------------------------------------------------------------------------

    def store(self, payload: Payload, round_number: tf.Tensor, note: tf.Tensor) -> list[tf.Operation]:
        """Puts a push into the slot of the worker here; the tag is written last."""
        with tf.device(self.device):
            stored = [self.slot_here[name].write(tf.identity(tensor)) for name, tensor in payload.items()]
            stored.append(self.note_here.write(tf.identity(note)))
            with tf.control_dependencies(stored):
                return [*stored, self.tag_here.write(tf.identity(round_number))]

    def read_answer(self) -> Payload:
        """What the worker here is to pull; the tensors are on the server until they are used."""
        with tf.device(self.device):
            if self.answer_here is None:
                return {name: vector.read() for name, vector in self.answers[0].items()}
            return {name: shelf.read() for name, shelf in self.answer_here.items()}

    def read_everything(self) -> tf.Tensor:
        """The block as a worker takes it over that pulls everything, on the server until it is used."""
        with tf.device(self.device):
            if self.held_here is not None:
                return self.held_here.read()
            return self.exchange.held_by_worker(_values_of(self.shadows[0]), self.value.read_value())

    # -- called in the merge's function ---------------------------------------------------------------------------

    def inspect(self, round_number: tf.Tensor, whole: bool) -> tf.Tensor:
        """What may become of each worker's push, i32[workers]."""
        verdicts = []
        with tf.device(self.device):
            for worker, slot in enumerate(self.slots):
                payload = self._payload(slot, whole)
                verdict = tf.where(is_finite(payload), MERGED, NOT_FINITE)
                if "signature.keys" in payload:
                    theirs, ours = payload["signature.keys"], self.signature.read_value()
                    is_same = tf.raw_ops.Equal(x=theirs, y=ours, incompatible_shape_error=False)  # empty before a push
                    verdict = tf.where(tf.reduce_all(is_same), verdict, WRONG_SIGNATURE)
                verdicts.append(tf.where(tf.equal(self.tags[worker], round_number), verdict, ABSENT))
            return tf.stack(verdicts)

    def fold(self, round_number: tf.Tensor, verdicts: tf.Tensor, whole: bool) -> tuple[tf.Tensor, tf.Tensor]:
        """Folds the slots that may be merged; returns the block and what was subtracted from it."""
        with tf.device(self.device):
            verdicts = tf.identity(verdicts)
            is_new = round_number > self.merged
            before = self.value.read_value()

            def merge():
                incoming, notes = self._incoming(verdicts, whole)
                increments, edits = self.exchange.merge(_values_of(self.state), before, incoming, notes)
                self._apply(increments, self.state, edits)
                self.merged.assign(round_number)
                return self.value.read_value()

            after = tf.cond(is_new, merge, self.value.read_value)
            after.set_shape(before.shape)
            return after, before - after

    def prepare_answers(self, verdicts: tf.Tensor) -> None:
        """Makes ready what each worker is to pull, from what it last pushed."""
        with tf.device(self.device):
            value = self.value.read_value()
            agreed = dict(self.agreed, round=tf.cast(self.merged, tf.int32))
            for worker, (answer, shadow) in enumerate(zip(self.answers, self.shadows)):
                tag = self.tags[worker].read_value()
                if self.exchange.method.down.is_shared:
                    draw, held = self.exchange.draw(agreed["round"], -1), agreed
                else:
                    draw = self.exchange.draw(tf.cast(tag, tf.int32), worker)
                    held = dict(agreed, pushed=self._pushed(worker, draw))
                payload, edits = self.exchange.answer(self.number, _values_of(shadow), value, held, draw)
                for name, tensor in payload.items():
                    answer[name].write(tensor)
                self._apply([], shadow, edits)

    def adopt_keys(self, agreed: State) -> None:
        """Puts a new agreement in place."""
        with tf.device(self.device):
            self.core.write(agreed["core"])
            self.share.assign(agreed["share"])
            self.signature.assign(agreed["signature"])

    def reset(self, value: tf.Tensor) -> None:
        """Sets the block and begins its server state anew; what lies in the slots is void."""
        with tf.device(self.device):
            self.value.assign(value)
            for name, tensor in self.exchange.init_server(tf.identity(value)).items():
                self.state[name].assign(tensor)
            for shadow in self.shadows:
                for name, tensor in self.exchange.init_shadow(tf.identity(value)).items():
                    shadow[name].assign(tensor)
            for tag in self.tags:
                tag.assign(tf.constant(-1, tf.int64))

    # -- inside ---------------------------------------------------------------------------------------------------

    def _payload(self, slot: dict[str, Vector], whole: bool) -> Payload:
        streams = {name: vector.read() for name, vector in slot.items()}
        return {n: t for n, t in streams.items() if n.endswith(".keys") or n.startswith("whole.") == whole}

    def _incoming(self, verdicts: tf.Tensor, whole: bool) -> tuple[list[Entries], list[Note]]:
        incoming, notes = [], []
        size = self.exchange.sizes[self.number]
        for worker, slot in enumerate(self.slots):
            present = tf.equal(verdicts[worker], MERGED)
            draw = self.exchange.draw(tf.cast(self.tags[worker], tf.int32), worker)
            is_sparse = not whole and not self.exchange.method.up.is_dense

            def received(slot=slot, draw=draw, is_sparse=is_sparse):
                entries = self.exchange.receive(self.number, self._payload(slot, whole), self.agreed, draw, whole)
                return entries.index if is_sparse else tf.zeros([0], tf.int32), entries.value

            def nothing(is_sparse=is_sparse):
                return tf.zeros([0], tf.int32), tf.zeros([0 if is_sparse else size])

            index, value = tf.cond(present, received, nothing)
            incoming.append(Entries(index if is_sparse else None, value))
            note = self.notes[worker].read_value()
            notes.append(Note(present, note[0], tf.cast(note[1], tf.int32)))
        return incoming, notes

    def _pushed(self, worker: int, draw: tf.Tensor) -> tf.Tensor:
        is_pushed = self.tags[worker] >= 0

        def index():
            payload = {name: vector.read() for name, vector in self.slots[worker].items()}
            return self.exchange.chosen(self.number, payload, self.agreed, draw)

        return tf.cond(is_pushed, index, lambda: tf.zeros([0], tf.int32))

    def _apply(self, increments: list[Entries], state: dict[str, tf.Variable], edits: Edits) -> None:
        for increment in increments:
            if increment.index is None:
                self.value.assign_sub(increment.value)
            else:
                self.value.scatter_sub(tf.IndexedSlices(increment.value, increment.index))
        for name, edit in edits.items():
            write_handle(state[name].handle, edit)


def _values_of(variables: dict[str, tf.Variable]) -> State:
    return {name: variable.read_value() for name, variable in variables.items()}
