"""What lives on the servers: the blocks, one slot per worker for its push, one shelf per worker for its pull.

A push stores: it overwrites the worker's slot and tags it with the round, so a push that is repeated counts once.
A merge folds: it takes the slots tagged with its round, in worker order, once. What a worker is to pull is made ready
by the merge, so a pull reads and changes nothing.
"""

from __future__ import annotations

import functools

import tensorflow as tf

from slimdp_tf.channel import Parts, joined
from slimdp_tf.distribute.local_variable import Shelf, Vector, reduce_handle, write_handle
from slimdp_tf.distribute.transport import cut, join
from slimdp_tf.exchange import Exchange
from slimdp_tf.inspection import ABSENT, MERGED, Facts, gather_facts, inspect, read_choice
from slimdp_tf.types import Edits, Entries, Note, Payload, State

Choice = tuple[Parts, tf.Tensor]  # see `inspection.read_choice`


class Block:
    """One block of the model on its server.

    Args:
        exchange: the method, with the sizes of all blocks.
        number: which block this is.
        device: where it lives.
        workers: how many slots it has.
        templates: payloads of a push (ordinary and whole) and of an answer, which name the slots' tensors.
    """

    def __init__(self, exchange: Exchange, number: int, device: str, workers: int, templates: tuple[Payload, Payload]):
        self.exchange, self.number, self.device = exchange, number, device
        pushed, answered = templates
        with tf.device(device):
            size = exchange.sizes[number]
            self.value = tf.Variable(tf.zeros([size]), trainable=False)
            self.state = {name: tf.Variable(t) for name, t in exchange.init_server(tf.zeros([size])).items()}
            self.lists = {name: Vector(tf.int32) for name in exchange.lists}
            self.share = tf.Variable(tf.zeros([4], tf.int64))
            self.signature = tf.Variable(tf.zeros([3], tf.int64))
            self.merged = tf.Variable(tf.constant(-1, tf.int64))
            self.slots = [{name: Vector(t.dtype) for name, t in pushed.items()} for _ in range(workers)]
            self.tags = [tf.Variable(tf.constant(-1, tf.int64)) for _ in range(workers)]
            self.notes = [tf.Variable(tf.zeros([2])) for _ in range(workers)]
            answers = 1 if exchange.method.shares_answer else workers
            zeros = tf.zeros([size])
            self.shadows = [{n: tf.Variable(t) for n, t in exchange.init_shadow(zeros).items()} for _ in range(answers)]
            self.answers = [{name: Vector(t.dtype) for name, t in answered.items()} for _ in range(answers)]
        self._lengths = {name: t.shape for name, t in answered.items()}
        self._received = tf.function(self._receive, autograph=False)  # traced once, however many workers there are
        self._chosen = tf.function(self._choose, autograph=False)
        self.slot_here = {name: Shelf([slot[name] for slot in self.slots]) for name in pushed}
        self.tag_here, self.note_here = Shelf(self.tags), Shelf(self.notes)
        self.answer_here = {name: Shelf([a[name] for a in self.answers]) for name in answered} if answers > 1 else None
        self.held_here = Shelf([s["anchor"] for s in self.shadows]) if self.shadows[0] and answers > 1 else None

    @property
    def agreed(self) -> State:
        """What the server holds of the agreement on this block."""
        agreed = {name: vector.read() for name, vector in self.lists.items()}
        return {**agreed, "share": self.share.read_value(), "signature": self.signature}

    @property
    def agreed_here(self) -> State:
        """What the worker here is to hold of it."""
        return self.agreed

    # -- called in a worker's function ----------------------------------------------------------------------------

    def store(self, payload: Payload, round_number: tf.Tensor, note: tf.Tensor) -> list[tf.Operation]:
        """Puts a push into the slot of the worker here; the tag is written last."""
        longest = self.exchange.sizes[self.number]
        cuts = {name: cut(vector, longest) for name, vector in payload.items()}
        with tf.device(self.device):
            stored = [self.slot_here[name].write(join(pieces)) for name, pieces in cuts.items()]
            stored.append(self.note_here.write(tf.identity(note)))
            with tf.control_dependencies(stored):
                return [*stored, self.tag_here.write(tf.identity(round_number))]

    def read_answer(self) -> Payload:
        """What the worker here is to pull; the tensors are on the server until they are used."""
        held = self.answers[0] if self.answer_here is None else self.answer_here
        with tf.device(self.device):
            payload = {name: vector.read() for name, vector in held.items()}
        for name, tensor in payload.items():
            tensor.set_shape(self._lengths[name])
        return payload

    def read_everything(self) -> tf.Tensor:
        """The block as a worker takes it over that pulls everything, on the server until it is used."""
        with tf.device(self.device):
            if self.held_here is not None:
                return self.held_here.read()
            return self.exchange.held_by_worker(_values_of(self.shadows[0]), self.value.read_value())

    def read_signature(self) -> tf.Tensor:
        """The signature of the keys that the worker here is to hold, on the server until it is used. i64[3]"""
        with tf.device(self.device):
            return self.signature.read_value()

    def read_keys(self) -> State:
        """These keys, and the block's share, on the server until they are used."""
        with tf.device(self.device):
            return {"core": self.lists["core"].read(), "share": self.share.read_value()}

    # -- called in the merge's function ---------------------------------------------------------------------------

    def inspect(self, round_number: tf.Tensor, whole: bool, choices: list[Choice]) -> tf.Tensor:
        """What may become of each worker's push, i32[workers]."""
        verdicts = []
        with tf.device(self.device):
            signature = self.signature.read_value()
            for slot, tag, choice in zip(self.slots, self.tags, choices):
                verdict = inspect(self.exchange, self.number, self._payload(slot, whole), choice, signature, whole)
                verdicts.append(tf.where(tf.equal(tag, round_number), verdict, ABSENT))
            return tf.stack(verdicts)

    def choices(self) -> list[Choice]:
        """The entries that each worker chose for its last push, and whether its keys can be meant; none before that."""
        if self.exchange.method.up.is_dense:
            return [([None], tf.constant(True))] * len(self.slots)
        found, count = [], len(self.exchange.method.up.selectors)
        with tf.device(self.device):
            agreed = self.agreed
            for worker, (slot, tag) in enumerate(zip(self.slots, self.tags)):
                draw = self.exchange.draw(tf.cast(tag, tf.int32), worker)
                choose = functools.partial(self._chosen, keys_of(slot), agreed, draw)
                none = ([tf.zeros([0], tf.int32)] * count, tf.constant(True))
                found.append(tf.cond(tag >= 0, choose, lambda none=none: none))
        return found

    def gather_facts(self, number: tf.Tensor, worker: tf.Tensor, whole: bool) -> Facts:
        """What tells why the push that the worker here made in round `number` was refused."""
        with tf.device(self.device):
            agreed, worker_round = self.agreed_here, tf.cast(number, tf.int32)
            choice = self._choose(keys_of(self.slot_here), agreed, self.exchange.draw(worker_round, worker))
            payload, signature = self._payload(self.slot_here, whole), tf.identity(agreed["signature"])
            return gather_facts(self.exchange, self.number, payload, choice, signature, whole)

    def fold(
        self, round_number: tf.Tensor, verdicts: tf.Tensor, whole: bool, chosen: list[Parts], is_update_wanted: bool
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Folds the slots that may be merged; returns the block and, if wanted, what was subtracted from it."""
        with tf.device(self.device):
            verdicts = tf.identity(verdicts)
            before = self.value.read_value() if is_update_wanted else None  # as long as it is held, a change copies

            def merge():
                incoming, notes = self._incoming(verdicts, whole, chosen)
                draw = self.exchange.draw(tf.cast(round_number, tf.int32), -1)
                incoming = self.exchange.together(self.number, incoming, draw)
                increments, edits = self.exchange.merge(
                    _values_of(self.state), self.value.read_value(), incoming, notes
                )
                self._apply(increments, self.state, edits)
                return self.merged.assign(round_number)

            done = tf.cond(round_number > self.merged, merge, self.merged.read_value)
            with tf.control_dependencies([done]):
                after = self.value.read_value()
            return after, before - after if is_update_wanted else None

    def prepare_answers(self, chosen: list[Parts]) -> None:
        """Makes ready what each worker is to pull, from what it chose last."""
        with tf.device(self.device):
            value = self.value.read_value()
            agreed = dict(self.agreed, round=tf.cast(self.merged, tf.int32))
            for worker, (answer, shadow) in enumerate(zip(self.answers, self.shadows)):
                if self.exchange.method.shares_answer:
                    draw, held = self.exchange.draw(agreed["round"], -1), agreed
                else:
                    draw = self.exchange.draw(tf.cast(self.tags[worker], tf.int32), worker)
                    held = dict(agreed, pushed=joined(chosen[worker]))
                payload, edits = self.exchange.answer(self.number, _values_of(shadow), value, held, draw)
                for name, tensor in payload.items():
                    answer[name].write(tensor)
                self._apply([], shadow, edits)

    def adopt_keys(self, agreed: State) -> None:
        """Puts a new agreement in place."""
        with tf.device(self.device):
            for name, vector in self.lists.items():
                vector.write(agreed[name])
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

    def _receive(self, payload: Payload, parts: Parts, whole: bool) -> tuple[tf.Tensor, tf.Tensor]:
        """A worker's push -> the entries it sent (none where it sent all) and their values."""
        with tf.device(self.device):
            entries = self.exchange.receive(self.number, payload, parts, whole)
            return tf.zeros([0], tf.int32) if entries.index is None else entries.index, entries.value

    def _choose(self, keys: Payload, agreed: State, draw: tf.Tensor) -> Choice:
        """The keys in a worker's push -> the entries it chose."""
        with tf.device(self.device):
            return read_choice(self.exchange, self.number, keys, agreed, draw)

    def _incoming(self, verdicts: tf.Tensor, whole: bool, chosen: list[Parts]) -> tuple[list[Entries], list[Note]]:
        incoming, notes = [], []
        is_sparse = not whole and not self.exchange.method.up.is_dense
        none, nothing = tf.zeros([0], tf.int32), tf.zeros([0 if is_sparse else self.exchange.sizes[self.number]])
        for worker, (slot, parts) in enumerate(zip(self.slots, chosen)):
            present = tf.equal(verdicts[worker], MERGED)

            def received(slot=slot, parts=parts):
                return self._received(self._payload(slot, whole), parts, whole)

            index, value = tf.cond(present, received, lambda: (none, nothing))
            incoming.append(Entries(index if is_sparse else None, value))
            note = self.notes[worker].read_value()
            notes.append(Note(present, note[0], tf.cast(note[1], tf.int32)))
        return incoming, notes

    def _apply(self, increments: list[Entries], state: dict[str, tf.Variable], edits: Edits) -> None:
        for increment in increments:
            reduce_handle(self.value.handle, increment)
        for name, edit in edits.items():
            write_handle(state[name].handle, edit)


def keys_of(slot: dict[str, Vector | Shelf]) -> Payload:
    """The keys in a slot."""
    return {name: vector.read() for name, vector in slot.items() if name.endswith(".keys")}


def _values_of(variables: dict[str, tf.Variable]) -> State:
    return {name: variable.read_value() for name, variable in variables.items()}
