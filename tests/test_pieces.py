"""Pieces: every entry of a block belongs to one of them, and a cut inside a row gives two columns of their own."""

from __future__ import annotations

import hypothesis
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from slimdp_tf.exchange import block_sizes
from slimdp_tf.pieces import columns_of, count_columns, count_layers, cut, layers_of


def test_one_block_holds_the_variables_as_they_are():
    assert cut([(4, 3), (3,), (3, 3, 2, 5), ()], [12 + 3 + 90 + 1]) == (((4, 3), (3, 1), (18, 5), (1, 1)),)


def test_a_cut_inside_a_row_makes_columns_of_its_ends():
    # A kernel of 4 x 3 and a bias of 3: 15 entries in blocks of 8 and 7. Entry 8 is the last of row 2.
    assert cut([(4, 3), (3,)], [8, 7]) == (((2, 3), (2, 1)), ((1, 1), (1, 3), (3, 1)))
    assert cut([(1, 10)], [4, 3, 3]) == (((4, 1),), ((3, 1),), ((3, 1),))
    assert cut([(2, 2), (2, 2)], [4, 4]) == (((2, 2),), ((2, 2),))


@hypothesis.given(
    shapes=st.lists(st.lists(st.integers(1, 7), max_size=3), min_size=1, max_size=5), servers=st.integers(1, 6)
)
def test_pieces_hold_their_block(shapes, servers):
    entries = 0
    for shape in shapes:
        size = 1
        for side in shape:
            size *= side
        entries += size
    sizes = [size for size in block_sizes(entries, servers) if size]
    pieces = cut(shapes, sizes)
    assert [sum(rows * columns for rows, columns in held) for held in pieces] == sizes
    assert all(rows > 0 and columns > 0 for held in pieces for rows, columns in held)


def test_refuses_shapes_that_are_not_the_blocks():
    with pytest.raises(ValueError, match="must hold the 9 entries of the blocks. Received: 8 entries."):
        cut([(4, 2)], [5, 4])


@pytest.mark.parametrize("pieces", [None, ((5, 3), (2, 1)), ((1, 4),)])
def test_counts_what_it_makes(pieces):
    value = tf.zeros([7 if pieces is None else sum(rows * columns for rows, columns in pieces)])
    assert count_layers(pieces) == len(layers_of(value, pieces))
    assert count_columns(pieces) == sum(column.shape[1] for column in columns_of(value, pieces))
