"""Variables that the workers share through the servers: trainable weights, and averages such as BatchNorm's.

One `Shared` is a method applied to a list of variables: their layout, their blocks on the servers, and what each worker
keeps of them. Its functions are called while a worker's round or the merge is traced.
"""

from __future__ import annotations

import contextlib

import tensorflow as tf

from slimdp_tf.distribute.blocks import Layout
from slimdp_tf.distribute.flat import Flat
from slimdp_tf.distribute.local_variable import LocalVariable, Shelf, Vector
from slimdp_tf.distribute.slots import Block
from slimdp_tf.distribute.transport import fetch
from slimdp_tf.distribute.workers import Workers
from slimdp_tf.exchange import Exchange, is_nothing, payload_bytes
from slimdp_tf.method import Method
from slimdp_tf.types import Edits, Payload, State


class Shared:
    """A method on a list of variables.

    Args:
        method: how they are exchanged.
        variables: what is exchanged, in the order in which it is flattened.
        devices: a device per server.
        workers: the workers.
        seed: the run's seed.
    """

    make_block = Block

    def __init__(self, method: Method, variables: list[LocalVariable], devices: list[str], workers: Workers, seed: int):
        self.layout = Layout.of(variables, len(devices))
        self.exchange = Exchange(method, self.layout.sizes, seed, self.layout.pieces)
        self.devices, self.workers = devices[: len(self.layout.sizes)], workers
        made = enumerate(zip(self.devices, templates_of(self.exchange)))
        self.blocks = [self.make_block(self.exchange, j, d, len(workers), templates) for j, (d, templates) in made]
        self._shelves: list[dict[str, Shelf]] = [{} for _ in self.blocks]
        self._flat = Flat(self.layout, len(workers), method.down.is_dense)
        workers.furnish(self._furnish)
        nothing = [tf.zeros([0], tf.int32) for _ in self.blocks]
        tf.function(lambda: self.set_keys(nothing, 0), autograph=False).get_concrete_function()()

    # -- in a worker's round --------------------------------------------------------------------------------------

    def adopt(self, round_number: tf.Tensor, worker: tf.Tensor, everything: bool) -> tuple[tf.Tensor, tf.Tensor]:
        """Pulls what was made ready for the worker here (or every entry) and takes it over.

        Returns:
            Bytes pulled, i64[blocks, 2] (values, keys), and what `renew_keys` found, i64[3].
        """
        if everything:
            pulled, counts = self._take_everything()
        else:
            pulled, counts = self._take_answers(round_number - 1, worker)
        values = self.layout.restore(pulled)
        self.write_local(values)
        keys, matches = self.renew_keys()
        with tf.control_dependencies(values):  # who waits for the counts waits for what they count
            return tf.stack(counts) + keys, matches

    def _take_everything(self) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        pulled, counts = [], []
        for j, block in enumerate(self.blocks):
            payload: Payload = fetch({"value": block.read_everything()}, block.device, self.exchange.sizes[j])
            pulled.append(payload["value"])
            self.write(j, self.exchange.init_worker(payload["value"]))
            counts.append(tf.stack(payload_bytes(payload)))
        return pulled, counts

    def _take_answers(self, merged: tf.Tensor, worker: tf.Tensor) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        draw = self.exchange.draw(merged, -1 if self.exchange.method.shares_answer else worker)
        changes, counts = [], []
        for j, (block, read) in enumerate(zip(self.blocks, self._flat.hold(self.read_local()))):
            payload = fetch(block.read_answer(), block.device, self.exchange.sizes[j])
            agreed = dict(self._agreed(j), pushed=self._shelves[j]["pushed"].read(), round=merged)
            change, edits = self.exchange.take_over(j, self.state(j), read, payload, agreed, draw)
            self.write(j, edits)
            changes.append(change)
            counts.append(tf.stack(payload_bytes(payload)))
        pulled = self._flat.change([change.after for change in changes])
        for j, change in enumerate(changes):
            self.write(j, self.exchange.rebase(self.state(j), pulled[j], change))
        return pulled, counts

    def push(
        self, round_number: tf.Tensor, worker: tf.Tensor, whole: bool, note: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Stores the update of the worker here in its slots.

        Returns:
            Bytes pushed, i64[blocks, 2] (values, keys), entries explored beyond the core, i64[], and whether the update
            is nothing but zeros, bool[].
        """
        draw = self.exchange.draw(round_number, worker)
        local = self.layout.flatten(self.read_local())
        counts, explored, returned, nothing, stored = [], tf.zeros([], tf.int64), [], [], []
        for j, block in enumerate(self.blocks):
            agreed = dict(self._agreed(j), round=round_number)
            payload, pushed, edits = self.exchange.push(j, self.state(j), local[j], agreed, draw, whole)
            stored += block.store(payload, tf.cast(round_number, tf.int64), note)
            if pushed is not None:
                edits = dict(edits, pushed=pushed)
                explored += tf.size(pushed, tf.int64) - tf.size(agreed["core"], tf.int64)
            returned.append(edits.pop("local", None))
            self.write(j, edits)
            counts.append(tf.stack(payload_bytes(payload)))
            nothing.append(is_nothing(payload))
        if self.exchange.method.up.memory.returns:
            self.write_local(self.layout.restore(returned))
        with tf.control_dependencies(stored):
            return tf.stack(counts), explored, tf.reduce_all(nothing)

    def renew_keys(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Fetches the keys of the blocks whose signature is not the server's: bytes pulled, i64[blocks, 2], and i64[3],
        signatures that matched, that did not, and those of the latter that no older core explains."""
        if not self.exchange.method.agreement.period:
            return tf.zeros([len(self.blocks), 2], tf.int64), tf.zeros([3], tf.int64)
        counts, matches = [], tf.zeros([3], tf.int64)
        for block, shelf in zip(self.blocks, self._shelves):
            theirs, held = tf.identity(block.read_signature()), shelf["signature"].read()
            is_same = tf.reduce_all(tf.equal(theirs, held))

            def renew(block=block, shelf=shelf, theirs=theirs):
                agreed = fetch(block.read_keys(), block.device, self.exchange.sizes[block.number])
                for name, tensor in self.exchange.hold(**agreed).items():
                    shelf[name].write(tensor)
                shelf["signature"].write(theirs)
                return tf.size(agreed["core"], tf.int64) * 4 + 4 * 8

            keys = tf.cond(is_same, lambda: tf.zeros([], tf.int64), renew) + 3 * 8
            counts.append(tf.stack([tf.zeros([], tf.int64), keys]))
            matches += tf.cast(tf.stack([is_same, ~is_same, ~is_same & (held[0] >= theirs[0])]), tf.int64)  # versions
        return tf.stack(counts), matches

    def read_local(self) -> list[tf.Tensor]:
        """What the worker here exchanges, a value per variable: its weights."""
        return [variable.value() for variable in self.layout.variables]

    def write_local(self, values: list[tf.Tensor]) -> None:
        """Sets what `read_local` reads."""
        for variable, value in zip(self.layout.variables, values):
            variable.assign(value)

    def begin_here(self) -> None:
        """The weights of the worker here were set, as they were when nothing was under way."""

    def state(self, block: int) -> State:
        """What the worker here keeps of a block."""
        held = (*self.exchange.lists, "share", "signature", "pushed")
        return {name: shelf.read() for name, shelf in self._shelves[block].items() if name not in held}

    def _agreed(self, block: int) -> State:
        return {name: self._shelves[block][name].read() for name in (*self.exchange.lists, "share", "signature")}

    def write(self, block: int, edits: Edits) -> None:
        """Edits what the worker here keeps of a block."""
        for name, edit in edits.items():
            self._shelves[block][name].write(edit)

    # -- in the merge ---------------------------------------------------------------------------------------------

    def merge(self, round_number: tf.Tensor, verdicts: tf.Tensor, choices: list, whole: bool, refresh: bool) -> None:
        """Folds the round on every server, makes the answers ready, and chooses new keys where `refresh`."""
        folded = []
        for block, of_workers in zip(self.blocks, choices):
            chosen = [parts for parts, _ in of_workers]
            folded.append(block.fold(round_number, verdicts, whole, chosen, refresh))
            block.prepare_answers(chosen)
        if refresh:
            values, updates = map(list, zip(*folded))
            keys = [block.lists["core"].read() for block in self.blocks]
            self.set_keys(self.exchange.refresh(values, updates, self._on, keys), round_number + 1)

    def core_entries(self) -> tf.Tensor:
        """Entries in the core, over all blocks, i64[]."""
        return tf.add_n([tf.size(block.agreed["core"], tf.int64) for block in self.blocks])

    def set_keys(self, keys: list[tf.Tensor], version: tf.Tensor | int) -> None:
        """Puts an agreement on the core's keys in place on every server."""
        for block, agreed in zip(self.blocks, self.exchange.agree(keys, version, self._on)):
            block.adopt_keys(agreed)

    def _on(self, block: int) -> contextlib.AbstractContextManager:
        return tf.device(self.devices[block])

    # -- for the chief --------------------------------------------------------------------------------------------

    def fetch(self) -> list[tf.Tensor]:
        """The servers' value of each variable."""
        return self.layout.restore([tf.identity(block.value.read_value()) for block in self.blocks])

    def store(self, values: list[tf.Tensor]) -> None:
        """Sets the servers' value of each variable; workers must pull everything after it."""
        for block, value in zip(self.blocks, self.layout.flatten(values)):
            block.reset(value)

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks."""
        return 4 * self.layout.entries

    # -- on joining and leaving -----------------------------------------------------------------------------------

    def release(self) -> None:
        """Lets go of the workers: a worker that comes back is no longer given these variables."""
        self.workers.forget(self._furnish)

    def _furnish(self, worker: int) -> None:
        """Makes this worker's variables: they hold nothing of worth until it has pulled everything."""
        with tf.device(self.workers.devices[worker]):
            self._flat.furnish(worker)
        total = self.layout.entries
        for j, (size, start) in enumerate(zip(self.exchange.sizes, self.layout.starts)):
            with tf.device(self.workers.devices[worker]):
                state = self.exchange.init_worker(tf.zeros([size]))
                made = {name: tf.Variable(tensor, trainable=False) for name, tensor in state.items()}
                made["share"] = tf.Variable(tf.constant([start, size, total, total], tf.int64))  # there is no core
                made["signature"] = tf.Variable(tf.fill([3], tf.constant(-1, tf.int64)))
                for name in (*self.exchange.lists, "pushed"):
                    made[name] = Vector(tf.int32)
            for name, variable in made.items():
                self._shelves[j].setdefault(name, Shelf([None] * len(self.workers))).put(worker, variable)


def templates_of(exchange: Exchange) -> list[tuple[Payload, Payload]]:
    """For each block the tensors a push may hold, and those of an answer: names, dtypes, and lengths where known."""

    def trace(blocks, keys, number):  # arguments, not constants: TensorFlow would know what becomes of these
        found = []
        for j, (local, agreed) in enumerate(zip(blocks, exchange.agree(keys, 0))):
            draw, agreed = exchange.draw(number, 0), dict(agreed, round=number)
            state = exchange.init_worker(local)
            pushed: Payload = {}
            for whole in (False, True) if exchange.method.agreement.whole else (False,):
                pushed.update(exchange.push(j, state, local, agreed, draw, whole)[0])
            held = dict(agreed, pushed=keys[j])
            found.append((pushed, exchange.answer(j, exchange.init_shadow(local), local, held, draw)[0]))
        return found

    blocks = [tf.TensorSpec([size]) for size in exchange.sizes]
    keys = [tf.TensorSpec([None], tf.int32) for _ in exchange.sizes]
    traced = tf.function(trace, autograph=False).get_concrete_function(blocks, keys, tf.TensorSpec([], tf.int32))
    return traced.structured_outputs
