"""What servers and workers hold, as arrays by name that do not depend on how many servers there are.

What has a value per entry of its block is joined over the blocks, so that another number of servers cuts it anew. What
has not belongs to its block ("state/step/block0") and means nothing to a model that is cut otherwise.
"""

from __future__ import annotations

import functools
import re

import numpy as np
import tensorflow as tf

from slimdp_tf.distribute.calls import constant_here, fetch_here
from slimdp_tf.distribute.local_variable import LocalVariable
from slimdp_tf.distribute.roles import Role
from slimdp_tf.distribute.slots import Block
from slimdp_tf.distribute.sync import ChiefCache
from slimdp_tf.types import State

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


class Held:
    """Reads what servers and workers hold of the variables of a cache, and puts it back.

    Args:
        cache: knows the variables and how they are shared; what it is bound to must stay the same.
    """

    def __init__(self, cache: ChiefCache):
        self.cache, self.shared = cache, dict(cache.shared)
        self._ask_servers = tf.function(self._servers, autograph=False).get_concrete_function()
        self._ask_worker = tf.function(self._worker, autograph=False).get_concrete_function()

    @functools.cached_property
    def variables(self) -> list[LocalVariable]:
        """Those of which every worker has a copy of worth."""
        return [v for v in self.cache.variables if self.cache.roles[id(v)] is not Role.FIXED]

    # -- servers --------------------------------------------------------------------------------------------------

    def read_servers(self) -> Arrays:
        """Everything on the servers; the entries of a core are places in the whole model, i64[c]."""
        read = self.cache.servers.call(
            lambda: tf.nest.map_structure(lambda t: fetch_here(t).numpy(), self._ask_servers()), "for a snapshot"
        )
        found = {}
        for (role, shared), (blocks, cores, version) in zip(self.shared.items(), read):
            core = [keys.astype(np.int64) + start for keys, start in zip(cores, shared.layout.starts)]
            arrays = {**join(blocks), "core": np.concatenate(core), "version": version}
            found.update({f"{_name(role)}/{name}": array for name, array in arrays.items()})
        return found

    def write_servers(self, saved: Arrays, merged: int) -> list[str]:
        """Puts back what `read_servers` gave, as after the merge of round `merged`; returns what begins anew."""
        given, anew = [], []
        for role, shared in self.shared.items():
            own = within(saved, _name(role))
            like = [self._fresh(shared, j, part) for j, part in enumerate(_split(own["value"], shared.layout.sizes))]
            blocks, kept = cut(own, like)
            bounds = np.searchsorted(own["core"], [*shared.layout.starts, shared.layout.entries])
            cores = [own["core"][a:b] - start for a, b, start in zip(bounds, bounds[1:], shared.layout.starts)]
            given.append((blocks, [keys.astype(np.int32) for keys in cores], own["version"]))
            anew += [f"{_name(role)}/{name}" for name in kept]
        given = tf.nest.map_structure(tf.constant, given)
        specs = tf.nest.map_structure(tf.TensorSpec.from_tensor, given)
        put = tf.function(self._put_servers, autograph=False)  # rare: its trace is not kept
        put = put.get_concrete_function(specs, tf.TensorSpec([], tf.int64))
        self.cache.servers.call(lambda: put(given, tf.constant(merged, tf.int64)), "while they were restored")
        return anew

    def _fresh(self, shared, block: int, value: np.ndarray) -> Arrays:
        """What a server holds of a block that begins with `value`."""
        like = {f"state/{name}": t for name, t in shared.exchange.init_server(tf.constant(value)).items()}
        shadow = shared.exchange.init_shadow(tf.constant(value))
        for k in range(len(shared.blocks[block].shadows)):
            like.update({f"shadow/{k}/{name}": t for name, t in shadow.items()})
        return {"value": value, **{name: tensor.numpy() for name, tensor in like.items()}}

    def _servers(self):
        found = []
        for shared in self.shared.values():
            held, cores = [_read_block(block) for block in shared.blocks], []
            for block in shared.blocks:
                with tf.device(block.device):
                    cores.append(block.lists["core"].read())
            found.append((held, cores, shared.blocks[0].signature.read_value()[0]))
        return found

    def _put_servers(self, given, merged):
        for shared, (blocks, cores, version) in zip(self.shared.values(), given):
            for block, held in zip(shared.blocks, blocks):
                _put_block(block, held, merged)
            shared.set_keys(cores, version)

    # -- workers --------------------------------------------------------------------------------------------------

    def read_workers(self) -> dict[int, Arrays]:
        """What every live worker holds; all must have adopted what was made ready for them."""
        read = self.cache.workers.call(
            lambda worker: tf.nest.map_structure(lambda t: fetch_here(t).numpy(), self._ask_worker())
        )
        return {worker: self._named(*held) for worker, held in read.items()}

    def write_workers(self, saved: dict[int, Arrays], roles: set[Role]) -> list[str]:
        """Puts back what `read_workers` gave, of the variables that have one of `roles`; returns what begins anew."""
        if not saved:
            return []
        variables, anew, given = [v for v in self.variables if self.cache.roles[id(v)] in roles], set(), {}
        for worker, arrays in saved.items():
            values = [arrays[f"variables/{name}"] for name in self.names(variables)]
            states = []
            for role, shared in self.shared.items():
                blocks, kept = self._cut_worker(shared, within(arrays, _name(role)), arrays)
                states.append(blocks)
                anew |= {f"{_name(role)}/{name}" for name in kept}
            given[worker] = [(states, values)]
        specs = tf.nest.map_structure(lambda a: tf.TensorSpec(a.shape, a.dtype), next(iter(given.values())))
        put = tf.function(functools.partial(self._put_worker, variables), autograph=False)
        put = put.get_concrete_function(*specs)
        self.cache.workers.call(
            lambda worker: put(*tf.nest.map_structure(lambda a: tf.identity(constant_here(a)), given[worker])), given
        )
        return sorted(anew)

    def names(self, variables: list[LocalVariable]) -> list[str]:
        """What the variables are called in a snapshot: their place in the model and their name, without its counts."""
        places = {id(v): place for place, v in enumerate(self.cache.variables)}
        bare = [re.sub(r"_\d+", "", v.name.split(":")[0].split("/")[-1]) for v in variables]  # Keras counts layers
        return [f"{places[id(v)]:03}_{name}" for v, name in zip(variables, bare)]

    def _named(self, states, values) -> Arrays:
        found = {f"variables/{name}": value for name, value in zip(self.names(self.variables), values)}
        for role, blocks in zip(self.shared, states):
            flat = _split(self._flat(role, found), self.shared[role].layout.sizes)
            joined = join([{"value": value, **block} for value, block in zip(flat, blocks)])
            found.update({f"{_name(role)}/{name}": array for name, array in joined.items() if name != "value"})
        return found

    def _cut_worker(self, shared, own: Arrays, arrays: Arrays) -> tuple[list[Arrays], list[str]]:
        role = next(role for role, known in self.shared.items() if known is shared)
        like = []
        for value in _split(self._flat(role, arrays), shared.layout.sizes):
            state = shared.exchange.init_worker(tf.constant(value))
            like.append({"value": value, **{name: tensor.numpy() for name, tensor in state.items()}})
        blocks, kept = cut({"value": self._flat(role, arrays), **own}, like)
        return [{name: a for name, a in block.items() if name != "value"} for block in blocks], kept

    def _flat(self, role: Role, arrays: Arrays) -> np.ndarray:
        """A worker's own values of what is shared, flattened, f32[n]."""
        names = self.names(list(self.shared[role].layout.variables))
        return np.concatenate([arrays[f"variables/{name}"].astype(np.float32).ravel() for name in names])

    def _worker(self):
        states = [[shared.state(j) for j in range(len(shared.blocks))] for shared in self.shared.values()]
        return states, [v.value() for v in self.variables]

    def _put_worker(self, variables, given):
        states, values = given
        for variable, value in zip(variables, values):
            variable.assign(value)
        for shared, blocks in zip(self.shared.values(), states):
            for j, state in enumerate(blocks):
                shared.write(j, state)
            shared.renew_keys()


def within(arrays: Arrays, folder: str) -> Arrays:
    """The arrays whose names begin with `folder`, without it."""
    return {name[len(folder) + 1 :]: array for name, array in arrays.items() if name.startswith(folder + "/")}


def _lasting(block: Block) -> dict[str, tf.Variable]:
    """What a server holds of a block beside its lists."""
    shadows = {f"shadow/{k}/{name}": v for k, shadow in enumerate(block.shadows) for name, v in shadow.items()}
    return {"value": block.value, **{f"state/{name}": v for name, v in block.state.items()}, **shadows}


def _read_block(block: Block) -> State:
    with tf.device(block.device):
        return {name: variable.read_value() for name, variable in _lasting(block).items()}


def _put_block(block: Block, held: State, merged: tf.Tensor) -> None:
    """Sets a block as after the merge of round `merged`, i64[]; what lies in its slots is void."""
    with tf.device(block.device):
        for name, variable in _lasting(block).items():
            variable.assign(held[name])
        block.merged.assign(merged)
        for tag in block.tags:
            tag.assign(tf.constant(-1, tf.int64))


def _split(flat: np.ndarray, sizes: tuple[int, ...]) -> list[np.ndarray]:
    return np.split(flat, np.cumsum(sizes)[:-1])


def _name(role: Role) -> str:
    return role.name.lower()
