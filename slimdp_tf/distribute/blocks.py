"""How the trainable variables of a model become blocks on the servers.

The variables are flattened, in their order, into one vector of f32[n]; the vector is cut into one stretch per server,
equal to one entry. A model with fewer entries than servers leaves the last servers without a block.
"""

from __future__ import annotations

import dataclasses
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
        flat = [tf.reshape(tf.cast(value, tf.float32), [-1]) for value in values]
        return list(tf.split(flat[0] if len(flat) == 1 else tf.concat(flat, 0), list(self.sizes)))

    def restore(self, blocks: list[tf.Tensor]) -> list[tf.Tensor]:
        """The blocks -> one value per variable, in its shape and dtype."""
        flat = blocks[0] if len(blocks) == 1 else tf.concat(blocks, 0)
        pieces = tf.split(flat, [math.prod(v.shape.as_list()) for v in self.variables])
        return [tf.cast(tf.reshape(piece, v.shape), v.dtype) for piece, v in zip(pieces, self.variables)]
