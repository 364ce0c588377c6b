"""Slim-DP: the core the server picks and an explorer each worker draws (papers/000, Algorithm 1), and with QSGD."""

from __future__ import annotations

import dataclasses
import math

from slimdp_tf.channel import Channel
from slimdp_tf.method import Method
from slimdp_tf.methods.pacing import paced
from slimdp_tf.rules.agreements import Nothing, SignificantCore
from slimdp_tf.rules.codecs import Qsgd, Raw
from slimdp_tf.rules.memories import Carry, Forget
from slimdp_tf.rules.merges import Average
from slimdp_tf.rules.selectors import Core, Dense, Explore, Pushed
from slimdp_tf.rules.triggers import Every
from slimdp_tf.types import Codec, is_number


@paced
def slim(
    alpha: float = 0.3,
    beta: float = 0.15,
    p: int = 1,
    q: int = 1000,
    c: float | str = "auto",
    memory: str = "forget",
    average: str = "workers",
    explorer_keys: str = "sent",
) -> Method:
    """Slim-DP; with the defaults of the last three, the paper's Algorithm 1 literally.

    Args:
        alpha: share of the entries that is communicated, in (0, 1].
        beta: share of the entries in the core, in [0, alpha]; 0 explores only, alpha exploits only.
        p: mini-batches per round.
        q: rounds between two core selections (`rounds` converts from mini-batches).
        c: weight of |g| in the significance |w| + c|g|; "auto" is mean|w| / mean|g|.
        memory: "forget" loses what is not sent (the paper); "carry" keeps it until its entry is sent.
        average: over "workers" (the paper, eta' = 1/K) or "contributors", the workers that sent an entry.
        explorer_keys: "sent" with the values (the paper), or "derived" by both ends from the run's seed.
    """
    return _slim("slim", alpha, beta, p, q, c, memory, average, explorer_keys, Raw())


@paced
def slim_quant(
    alpha: float = 0.3,
    beta: float = 0.15,
    p: int = 1,
    q: int = 1000,
    c: float | str = "auto",
    memory: str = "carry",
    average: str = "contributors",
    explorer_keys: str = "derived",
    bits: int = 8,
    bucket: int = 512,
) -> Method:
    """Slim-DP with its pushed values in QSGD; pulled weights stay 32-bit floats. See `slim` and `quant`."""
    return _slim("slim_quant", alpha, beta, p, q, c, memory, average, explorer_keys, Qsgd(bits, bucket))


def rounds(minibatches: int, p: int) -> int:
    """q in rounds from q in mini-batches, as the paper gives it: ceil(minibatches / p)."""
    for name, value in (("minibatches", minibatches), ("p", p)):
        is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        _check(name, value, is_count, "an integer of at least 1")
    return math.ceil(minibatches / p)


def _slim(name, alpha, beta, p, q, c, memory, average, explorer_keys, codec: Codec) -> Method:
    _check("alpha", alpha, is_number(alpha) and 0.0 < alpha <= 1.0, "a share within (0, 1]")
    _check("beta", beta, is_number(beta) and 0.0 <= beta <= alpha, f"within [0, alpha] = [0, {alpha}]")
    _check("memory", memory, memory in ("forget", "carry"), "'forget' or 'carry'")
    _check("explorer_keys", explorer_keys, explorer_keys in ("sent", "derived"), "'sent' or 'derived'")
    core = SignificantCore(beta, q, c)
    if memory == "carry":  # how long an entry outside the core waits for its turn, and no longer than for a whole round
        turn = (1.0 - beta) / (alpha - beta) if alpha > beta else q
        core = dataclasses.replace(core, waited=max(1.0, min(float(q), turn)))
    is_keyed = explorer_keys == "sent"
    selectors = ((Core(),) if beta > 0.0 else ()) + ((Explore(alpha - beta, is_keyed),) if alpha > beta else ())
    words = (2 * alpha - beta) if is_keyed else alpha
    if words >= 1.0:  # everything costs no more than the chosen entries with their keys
        selectors = (Dense(),)
    is_dense = selectors == (Dense(),)
    return Method(
        name,
        up=Channel(selectors, codec, Carry() if memory == "carry" else Forget()),
        down=Channel((Dense(),) if is_dense else (Pushed(),), carries="weights"),
        merge=Average(average),
        trigger=Every(p),
        agreement=Nothing() if is_dense or beta == 0.0 else core,
    )


def _check(name: str, value: object, is_allowed: bool, allowed: str) -> None:
    if not is_allowed:
        raise ValueError(f"{name} must be {allowed}. Received: {value!r}")
