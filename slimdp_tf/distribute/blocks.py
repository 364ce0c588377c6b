"""How the trainable variables of a model become blocks on the servers.

The variables are flattened, in their order, into one vector of f32[n]; the vector is cut into one stretch per server,
equal to one entry. A model with fewer entries than servers leaves the last servers without a block.
"""

from __future__ import annotations

import dataclasses
import itertools
import math

import tensorflow as tf

from slimdp_tf.exchange import block_sizes
from slimdp_tf.pieces import cut
from slimdp_tf.types import Pieces


@dataclasses.dataclass(frozen=True)
class Layout:
    """The variables of a model and the blocks they are cut into.

    Attributes:
        variables: the variables, in the order in which they are flattened.
        sizes: entries of each block.
    """

    variables: tuple[tf.Variable, ...]
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, variables: list[tf.Variable], servers: int) -> Layout:
        """Cuts `variables` into equal blocks, at most one per server."""
        entries = sum(math.prod(v.shape.as_list()) for v in variables)
        return cls(tuple(variables), tuple(size for size in block_sizes(entries, servers) if size))

    @property
    def pieces(self) -> tuple[Pieces, ...]:
        """What each block holds of the variables, as rows and columns."""
        return cut([v.shape.as_list() for v in self.variables], self.sizes)

    @property
    def entries(self) -> int:
        """n, entries of all variables."""
        return sum(self.sizes)

    def flatten(self, values: list[tf.Tensor]) -> list[tf.Tensor]:
        """One value per variable -> the blocks, f32[n_j] each."""
        return self.cut(self.join(values))

    def join(self, values: list[tf.Tensor]) -> tf.Tensor:
        """One value per variable -> the flattened vector, f32[n]."""
        flat = [tf.reshape(tf.cast(value, tf.float32), [-1]) for value in values]
        return flat[0] if len(flat) == 1 else tf.concat(flat, 0)

    def cut(self, flat: tf.Tensor) -> list[tf.Tensor]:
        """The flattened vector -> the blocks; they share its memory."""
        return list(tf.split(flat, list(self.sizes)))

    @property
    def starts(self) -> list[int]:
        """Where each block begins in the flattened vector."""
        return [0, *itertools.accumulate(self.sizes[:-1])]

    def restore(self, pieces: list[tf.Tensor]) -> list[tf.Tensor]:
        """What the flattened vector was cut into, anywhere -> one value per variable, in its shape and dtype."""
        ends, begin, values = list(itertools.accumulate(int(piece.shape[0]) for piece in pieces)), 0, []
        for variable in self.variables:
            end = begin + math.prod(variable.shape.as_list())
            parts = []
            for piece, last in zip(pieces, ends):
                first = last - int(piece.shape[0])
                if first < end and last > begin:
                    parts.append(piece[max(begin - first, 0) : end - first])
            flat = parts[0] if len(parts) == 1 else tf.concat(parts, 0) if parts else tf.zeros([0])
            values.append(tf.cast(tf.reshape(flat, variable.shape), variable.dtype))
            begin = end
        return values
