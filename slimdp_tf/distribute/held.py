"""What servers and workers hold, as arrays by name that do not depend on how many servers there are.

See `joining.py` for how.
"""

from __future__ import annotations

import functools
import re

import numpy as np
import tensorflow as tf

from slimdp_tf.distribute.calls import constant_here, fetch_here
from slimdp_tf.distribute.joining import Arrays, cut, cut_places, join, join_places, split, within
from slimdp_tf.distribute.local_variable import LocalVariable
from slimdp_tf.distribute.roles import Role
from slimdp_tf.distribute.shared import Shared
from slimdp_tf.distribute.slots import Block
from slimdp_tf.distribute.sync import ChiefCache
from slimdp_tf.types import State


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
        """Everything on the servers; entries of a block are places in the whole model, i64."""
        read = self.cache.servers.call(
            lambda: tf.nest.map_structure(lambda t: fetch_here(t).numpy(), self._ask_servers()), "for a snapshot"
        )
        found = {}
        for (role, shared), (blocks, lists, facts) in zip(self.shared.items(), read):
            arrays = {**join(blocks), **join_places(lists, shared.layout.sizes), **facts}
            found.update({f"{_name(role)}/{name}": array for name, array in arrays.items()})
        return found

    def write_servers(self, saved: Arrays, merged: int) -> list[str]:
        """Puts back what `read_servers` gave, as after the merge of round `merged`; returns what begins anew."""
        given, anew = [], []
        for role, shared in self.shared.items():
            own, sizes = within(saved, _name(role)), shared.layout.sizes
            blocks, kept = cut(own, [self._fresh(*of) for of in zip(shared.blocks, split(own["value"], sizes))])
            lists, facts = self._told(own)
            given.append((blocks, cut_places(lists, sizes), facts))
            anew += [f"{_name(role)}/{name}" for name in kept if name in own or f"{name}/block0" in own]
        given = tf.nest.map_structure(tf.constant, given)
        specs = tf.nest.map_structure(tf.TensorSpec.from_tensor, given)
        put = tf.function(self._put_servers, autograph=False)  # rare: its trace is not kept
        put = put.get_concrete_function(specs, tf.TensorSpec([], tf.int64))
        self.cache.servers.call(lambda: put(given, tf.constant(merged, tf.int64)), "while they were restored")
        return anew

    def _fresh(self, block: Block, value: np.ndarray) -> Arrays:
        """What a server holds of a block that begins with `value`."""
        like = {f"state/{name}": t for name, t in block.exchange.init_server(tf.constant(value)).items()}
        shadow = block.exchange.init_shadow(tf.constant(value))
        for k in range(len(block.shadows)):
            like.update({f"shadow/{k}/{name}": t for name, t in shadow.items()})
        return {"value": value, **{name: tensor.numpy() for name, tensor in like.items()}}

    def _servers(self):
        found = []
        for shared in self.shared.values():
            blocks, lists = [], []
            for block in shared.blocks:
                with tf.device(block.device):
                    blocks.append({name: variable.read_value() for name, variable in self._lasting(block).items()})
                    lists.append(self._lists(block))
            found.append((blocks, lists, self._facts(shared.blocks[0])))
        return found

    def _put_servers(self, given, merged):
        for shared, (blocks, lists, facts) in zip(self.shared.values(), given):
            self._put_told(shared, lists, facts)
            for block, held in zip(shared.blocks, blocks):
                with tf.device(block.device):
                    for name, variable in self._lasting(block).items():
                        variable.assign(held[name])
                    block.merged.assign(merged)
                    for tag in block.tags:  # what lies in the slots is void
                        tag.assign(tf.constant(-1, tf.int64))

    def _lasting(self, block: Block) -> dict[str, tf.Variable]:
        """What a server holds of a block by value."""
        shadows = {f"shadow/{k}/{name}": v for k, shadow in enumerate(block.shadows) for name, v in shadow.items()}
        return {"value": block.value, **{f"state/{name}": v for name, v in block.state.items()}, **shadows}

    def _lists(self, block: Block) -> State:
        """Which entries of a block it keeps lists of, i32."""
        return {"core": block.lists["core"].read()}

    def _facts(self, block: Block) -> State:
        """What all blocks know alike."""
        return {"version": block.signature.read_value()[0]}

    def _told(self, own: Arrays) -> tuple[Arrays, Arrays]:
        """What of a snapshot `_lists` and `_facts` gave."""
        return {"core": own["core"]}, {"version": own["version"]}

    def _put_told(self, shared: Shared, lists: list[State], facts: State) -> None:
        """Puts back what `_lists` and `_facts` gave."""
        shared.set_keys([of_block["core"] for of_block in lists], facts["version"])

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
            flat = split(self._flat(role, found), self.shared[role].layout.sizes)
            joined = join([{"value": value, **block} for value, block in zip(flat, blocks)])
            found.update({f"{_name(role)}/{name}": array for name, array in joined.items() if name != "value"})
        return found

    def _cut_worker(self, shared, own: Arrays, arrays: Arrays) -> tuple[list[Arrays], list[str]]:
        role = next(role for role, known in self.shared.items() if known is shared)
        like = []
        for value in split(self._flat(role, arrays), shared.layout.sizes):
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
            shared.begin_here()
            shared.renew_keys()


def _name(role: Role) -> str:
    return role.name.lower()
