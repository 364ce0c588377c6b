"""Long vectors in chunks that fit into a processor's cache.

An operation on a block of many megabytes spends its time on memory: on reading, on writing, and on the first touch of
the fresh pages of its result. A rule of several operations runs them all on one chunk before it takes the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

ENTRIES = 1 << 20  # of a chunk: 4 MB of 32-bit floats


def by_chunks(
    function: Callable[..., Sequence[tf.Tensor]],
    vectors: Sequence[tf.Tensor],
    results: Sequence[tf.DType],
    entries: int = ENTRIES,
) -> list[tf.Tensor]:
    """Applies `function` to one chunk after the other and joins what it returns.

    Args:
        function: (number of the chunk i32[], chunk of each vector [m]) -> vectors, of any lengths.
        vectors: equally long, [n] each.
        results: the dtype of each vector that `function` returns.
        entries: of a chunk, m; the last one may be shorter. A vector of length 0 is one chunk of length 0.

    Returns:
        What `function` returned, joined in the order of the chunks.
    """
    known = vectors[0].shape[0]
    if known is not None and known <= entries:
        return list(function(tf.constant(0), *vectors))
    count = tf.size(vectors[0])
    chunks = tf.maximum((count + entries - 1) // entries, 1)

    def run(number: tf.Tensor, joined: Sequence[tf.TensorArray]) -> tuple[tf.Tensor, list[tf.TensorArray]]:
        first = number * entries
        last = tf.minimum(count, first + entries)
        made = function(number, *[vector[first:last] for vector in vectors])
        return number + 1, [array.write(number, vector) for array, vector in zip(joined, made)]

    arrays = [tf.TensorArray(dtype, chunks, infer_shape=False, element_shape=[None]) for dtype in results]
    _, arrays = tf.while_loop(lambda number, _: number < chunks, run, [tf.constant(0), arrays], parallel_iterations=4)
    return [array.concat() for array in arrays]
