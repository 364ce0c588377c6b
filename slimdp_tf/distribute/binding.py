"""Which variables are trained, and that they are on the workers and the servers."""

from __future__ import annotations

import functools
from collections.abc import Callable

import tensorflow as tf

from slimdp_tf.distribute import _tf
from slimdp_tf.distribute.calls import ClusterError
from slimdp_tf.distribute.local_variable import LocalVariable
from slimdp_tf.distribute.roles import Role, role_of
from slimdp_tf.distribute.round_functions import RoundFunctions
from slimdp_tf.distribute.shared import Shared
from slimdp_tf.distribute.sync import ChiefCache
from slimdp_tf.method import Method
from slimdp_tf.methods import plump


class Binding:
    """Puts the variables of a model on workers and servers.

    Args:
        cache: the chief's copies, with the workers and the servers.
        method: how weights are exchanged.
        seed: the run's seed.
        settle: called before variables leave workers and servers.
        make_shared, make_functions: what shares variables, and what traces the functions of rounds.

    Attributes:
        functions: of the rounds that these variables need.
    """

    def __init__(
        self,
        cache: ChiefCache,
        method: Method,
        seed: int,
        settle: Callable[[], None] = lambda: None,
        make_shared: Callable[..., Shared] = Shared,
        make_functions: Callable[..., RoundFunctions] = RoundFunctions,
    ):
        self.cache, self.method, self.seed = cache, method, seed
        self._settle, self._make_shared, self._make_functions = settle, make_shared, make_functions
        self.functions = make_functions(cache, cache.servers.devices)
        self._roles: list[tuple[LocalVariable, Role]] = []
        self._weights: list[LocalVariable] = []
        self._make_copies: Callable[[int], None] | None = None

    def prepare(
        self, graph, variables: list[LocalVariable], weights: list[LocalVariable], private: list[LocalVariable]
    ) -> bool:
        """Binds the variables of a step unless they are bound; returns whether it did.

        Args:
            graph: of the local step.
            variables, weights, private: as in `Rounds.prepare`.
        """
        known = self.cache.roles
        is_weight, is_private = {id(v) for v in weights}, {id(v) for v in private}
        roles = []
        for v in variables:
            role = role_of(v, graph, id(v) in is_weight, id(v) in is_private)
            roles.append((v, known.get(id(v), role) if role is Role.FIXED else role))
        is_bound = all(known.get(id(v)) is role for v, role in roles)
        if is_bound and [id(v) for v in weights] == [id(v) for v in self._weights]:
            return False
        self._settle()
        for variable in self.cache.variables:
            variable.value()  # fetches what the owners hold
        self.let_go()
        self._roles, self._weights = roles, weights
        self.renew()
        return True

    def renew(self) -> None:
        """Puts the variables on workers and servers; what was there before is already at home, or lost."""
        workers, servers = self.cache.workers, self.cache.servers
        bind = functools.partial(self._bind, self._roles, self._weights)
        seconds = servers.deadline_s + workers.deadline_s  # in which workers that hang are given up
        servers.call(bind, "while the model was put on them", seconds)

    def _bind(self, roles: list[tuple[LocalVariable, Role]], weights: list[LocalVariable]) -> None:
        variables, workers, devices = [v for v, _ in roles], self.cache.workers, self.cache.servers.devices

        def make_copies(worker: int) -> None:
            for v in variables:
                v.copies += [None] * (len(workers) - len(v.copies))
                v.copies[worker] = _tf.new_copy(v, workers.devices[worker])

        self._make_copies = make_copies
        workers.furnish(make_copies)
        averages = [v for v, role in roles if role is Role.AVERAGE]
        recipes = {Role.WEIGHT: (self.method, weights)}
        if averages:
            recipes[Role.AVERAGE] = plump(self.method.p, pacing=self.method.pacing), averages
        shared = {role: self._make_shared(*recipe, devices, workers, self.seed) for role, recipe in recipes.items()}
        self.cache.bind(roles, shared)
        self.functions = self._make_functions(self.cache, devices)

    def bring_home(self) -> None:
        """Fetches what the owners hold, as far as they answer, and lets go of them."""
        self.cache.watch = lambda work: work()  # nothing is restored any more
        try:
            self._settle()
            for variable in self.cache.variables:
                variable.value()
        except (tf.errors.OpError, ClusterError) as error:
            tf.get_logger().warning("The chief keeps the values it had last: the cluster did not answer (%s).", error)
            for variable in self.cache.variables:
                variable.is_stale = False
        self.let_go()

    def let_go(self) -> None:
        """Lets go of the workers' copies and of what is shared."""
        for variable in self.cache.variables:
            variable.copies = []
        if self._make_copies is not None:
            self.cache.workers.forget(self._make_copies)
        for shared in self.cache.shared.values():
            shared.release()
