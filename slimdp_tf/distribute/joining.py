"""Arrays of all blocks as arrays of the model, which do not depend on how many servers there are.

What has a value per entry of its block is joined over the blocks, so that another number of servers cuts it anew. What
has not belongs to its block ("state/step/block0") and means nothing to a model that is cut otherwise. Lists of entries
become places in the whole model.
"""

from __future__ import annotations

import numpy as np

Arrays = dict[str, np.ndarray]


def join(blocks: list[Arrays]) -> Arrays:
    """Arrays of every block, of which each has a "value" f32[n_j] -> arrays of the model."""
    joined = {}
    for name in blocks[0]:
        parts = [block[name] for block in blocks]
        if all(part.shape == block["value"].shape for part, block in zip(parts, blocks)):
            joined[name] = np.concatenate(parts)
        else:
            joined.update({f"{name}/block{j}": part for j, part in enumerate(parts)})
    return joined


def cut(saved: Arrays, like: list[Arrays]) -> tuple[list[Arrays], list[str]]:
    """The inverse of `join`.

    Args:
        saved: arrays of the model.
        like: what every block holds at the beginning; it stays where `saved` has nothing of that name and shape.

    Returns:
        Arrays of every block, and the names of what stayed.
    """
    ends, blocks, kept = np.cumsum([block["value"].size for block in like])[:-1], [{} for _ in like], []
    for name in like[0]:
        fresh = [block[name] for block in like]
        own = [saved.get(f"{name}/block{j}") for j in range(len(like))]
        if name in saved and all(part.shape == block["value"].shape for part, block in zip(fresh, like)):
            parts = np.split(saved[name], ends)
        elif f"{name}/block{len(like)}" not in saved and all(
            part is not None and part.shape == new.shape for part, new in zip(own, fresh)
        ):
            parts = own
        else:
            parts = fresh
            kept.append(name)
        for block, part in zip(blocks, parts):
            block[name] = part
    return blocks, kept


def join_places(lists: list[Arrays], sizes: tuple[int, ...]) -> Arrays:
    """Lists of entries of every block, i32 -> the same as places in the model, i64."""
    starts = np.cumsum([0, *sizes[:-1]])
    return {
        name: np.concatenate([own[name].astype(np.int64) + start for own, start in zip(lists, starts)])
        for name in lists[0]
    }


def cut_places(joined: Arrays, sizes: tuple[int, ...]) -> list[Arrays]:
    """The inverse of `join_places`; the order within a block stays."""
    blocks = [{} for _ in sizes]
    for name, places in joined.items():
        for block, start, size in zip(blocks, np.cumsum([0, *sizes[:-1]]), sizes):
            inside = places[(places >= start) & (places < start + size)]
            block[name] = (inside - start).astype(np.int32)
    return blocks


def split(flat: np.ndarray, sizes: tuple[int, ...]) -> list[np.ndarray]:
    """A vector of the model -> what each block has of it."""
    return np.split(flat, np.cumsum(sizes)[:-1])


def within(arrays: Arrays, folder: str) -> Arrays:
    """The arrays whose names begin with `folder`, without it."""
    return {name[len(folder) + 1 :]: array for name, array in arrays.items() if name.startswith(folder + "/")}
