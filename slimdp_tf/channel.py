"""One direction of an exchange: which entries, how written, what becomes of the rest."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from slimdp_tf.rules.codecs import Raw
from slimdp_tf.rules.memories import Forget
from slimdp_tf.rules.selectors import Dense, Pushed
from slimdp_tf.types import Codec, Entries, Memory, Payload, Pieces, Selector, State, fitted

Parts = list[tf.Tensor | None]  # one index per selector


@dataclasses.dataclass(frozen=True)
class Channel:
    """What travels in one direction.

    A payload has one stream per selector, in order: "0.keys" (only of a keyed selector) and the codec's tensors
    ("0.value", "0.level", ...). A whole payload has the keys all the same, and one stream "whole" over all entries.

    Args:
        selectors: which entries; several selectors choose disjoint sets.
        codec: how the values are written.
        memory: what becomes of what is not sent.
        carries: "update" (what is to be subtracted) or "weights" (what is to be taken over).
    """

    selectors: tuple[Selector, ...] = (Dense(),)
    codec: Codec = Raw()
    memory: Memory = Forget()
    carries: str = "update"

    def __post_init__(self):
        if not isinstance(self.selectors, tuple):
            raise TypeError(f"selectors must be a tuple of selectors. Received: {self.selectors!r}")
        if not self.selectors:
            raise ValueError("A channel needs at least one selector. Received: none")
        if len(self.selectors) > 1 and any(isinstance(selector, Dense) for selector in self.selectors):
            raise ValueError(f"Dense stands alone: it leaves no entries for others. Received: {self.selectors}")
        if hasattr(self.codec, "pieces") and not self.is_dense:
            raise ValueError(
                f"{type(self.codec).__name__} goes by columns or variables of the model, so every entry must travel: "
                f"selectors must be (Dense(),). Received: {self.selectors}"
            )
        if self.carries not in ("update", "weights"):
            raise ValueError(f"A channel carries 'update' or 'weights'. Received: {self.carries!r}")

    @property
    def is_blind(self) -> bool:
        """Whether the entries are chosen without looking at values."""
        return all(selector.blind for selector in self.selectors)

    @property
    def is_dense(self) -> bool:
        """Whether every entry travels."""
        return all(isinstance(selector, Dense) for selector in self.selectors)

    @property
    def is_shared(self) -> bool:
        """Whether one answer is for all workers: unless each is told of the entries that it pushed itself."""
        return not any(isinstance(selector, Pushed) for selector in self.selectors)

    def fitted(self, pieces: Pieces) -> Channel:
        """The channel of a block that holds `pieces`."""
        selectors = tuple(fitted(selector, pieces) for selector in self.selectors)
        return dataclasses.replace(self, selectors=selectors, codec=fitted(self.codec, pieces))

    def choose(self, value: tf.Tensor | None, agreed: State, seed: tf.Tensor) -> Parts:
        """The entries of each selector; `value` f32[n] is needed unless the channel is blind."""
        return [s.pick(value, agreed, own) for s, own in zip(self.selectors, self._streams(seed))]

    def write(self, parts: Parts, value: tf.Tensor, seed: tf.Tensor, whole: bool) -> Payload:
        """Puts `value` (f32[k] at the joined `parts`, or f32[n] when `whole`) into a payload."""
        payload = {f"{i}.keys": _shorten(s, parts[i]) for i, s in enumerate(self.selectors) if s.keyed}
        streams = {"whole": value} if whole else dict(zip(map(str, range(len(parts))), _split(value, parts)))
        for (name, values), own in zip(streams.items(), self._streams(seed)[len(parts) :]):
            written = self.codec.encode(values, own)
            payload.update({f"{name}.{key}": tensor for key, tensor in written.items()})
        return payload

    def parts_of(self, payload: Payload, agreed: State, seed: tf.Tensor) -> Parts:
        """The entries of each selector, as the receiver knows them: by the keys sent, or by picking again."""
        return [
            _lengthen(s, payload[f"{i}.keys"]) if s.keyed else s.pick(None, agreed, own)
            for i, (s, own) in enumerate(zip(self.selectors, self._streams(seed)))
        ]

    def are_entries(self, payload: Payload, parts: Parts, size: int) -> tf.Tensor:
        """Whether the keys sent are those of entries of a block of `size`, which are `parts`. bool[]"""
        found = [tf.constant(True)]
        for i, (selector, part) in enumerate(zip(self.selectors, parts)):
            if selector.keyed:
                found.append((tf.reduce_min(part) >= 0) & (tf.reduce_max(part) < size) & (tf.size(part) <= size))
                if hasattr(selector, "shorten"):  # who lengthens leaves out what it does not know
                    found.append(is_same(selector.shorten(part), payload[f"{i}.keys"]))
        return tf.reduce_all(found)

    def lengths(self, parts: Parts, size: int, whole: bool) -> dict[str, tf.Tensor | int]:
        """How long the vectors of values are that `write` makes; without those whose length depends on the values."""
        return {
            f"{stream}.{name}": length
            for stream, count in _counts(parts, size, whole).items()
            for name, length in self.codec.lengths(count).items()
        }

    def is_readable(self, payload: Payload, parts: Parts, size: int, whole: bool) -> tf.Tensor:
        """Whether `read` can read a payload of the right lengths. bool[]"""
        counts = _counts(parts, size, whole) if hasattr(self.codec, "is_readable") else {}
        found = [self.codec.is_readable(_stream_of(payload, name), count) for name, count in counts.items()]
        return tf.reduce_all([tf.constant(True), *found])

    def read(self, payload: Payload, parts: Parts, size: int, whole: bool) -> Entries:
        """What `write` made -> the entries as the receiver decodes them; the block has `size` entries."""
        counts = _counts(parts, size, whole)
        values = [self.codec.decode(_stream_of(payload, name), count) for name, count in counts.items()]
        return Entries(None if whole else joined(parts), values[0] if len(values) == 1 else tf.concat(values, 0))

    def together(self, incoming: list[Entries], seed: tf.Tensor) -> list[Entries]:
        """What `read` gave of each sender of a round -> what they sent, known together; mostly as it is."""
        if not hasattr(self.codec, "together"):
            return incoming
        values = self.codec.together([entries.value for entries in incoming], seed)
        return [Entries(entries.index, value) for entries, value in zip(incoming, values)]

    def _streams(self, seed: tf.Tensor) -> list[tf.Tensor]:
        """A seed of its own for each selector, and for the codec in each stream."""
        return tf.unstack(tf.random.experimental.stateless_split(seed, 2 * len(self.selectors)))


def joined(parts: Parts) -> tf.Tensor | None:
    """All entries of `parts` in one index, None for the whole block."""
    if any(part is None for part in parts):
        return None
    return parts[0] if len(parts) == 1 else tf.concat(parts, 0)


def is_same(one: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    """Whether two vectors, of any lengths, are equal. bool[]"""
    is_equal = tf.raw_ops.Equal(x=one, y=other, incompatible_shape_error=False)
    return tf.equal(tf.size(one), tf.size(other)) & tf.reduce_all(is_equal)


def stream(seed: tf.Tensor, number: int | tf.Tensor) -> tf.Tensor:
    """A seed of its own, i32[2], for each use of randomness under `seed`."""
    return tf.random.experimental.stateless_fold_in(seed, number)


def _shorten(selector: Selector, index: tf.Tensor) -> tf.Tensor:
    """The keys that travel for the entries at `index`."""
    return selector.shorten(index) if hasattr(selector, "shorten") else index


def _lengthen(selector: Selector, keys: tf.Tensor) -> tf.Tensor:
    return selector.lengthen(keys) if hasattr(selector, "lengthen") else keys


def _counts(parts: Parts, size: int, whole: bool) -> dict[str, tf.Tensor | int]:
    """How many values each stream of a payload holds."""
    if whole:
        return {"whole": size}
    return {str(i): size if part is None else tf.size(part) for i, part in enumerate(parts)}


def _split(value: tf.Tensor, parts: Parts) -> list[tf.Tensor]:
    if len(parts) == 1:
        return [value]
    return tf.split(value, [tf.size(part) for part in parts], num=len(parts))


def _stream_of(payload: Payload, name: str) -> Payload:
    prefix = name + "."
    return {key[len(prefix) :]: tensor for key, tensor in payload.items() if key.startswith(prefix)}
