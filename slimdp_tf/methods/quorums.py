"""Methods that do not wait for the last workers of a round."""

from __future__ import annotations

from slimdp_tf.method import Method
from slimdp_tf.methods.pacing import paced
from slimdp_tf.rules.merges import Average
from slimdp_tf.rules.server_steps import BlockMomentum
from slimdp_tf.rules.triggers import Every


@paced
def backup_workers(b: int = 1, p: int = 1) -> Method:
    """Synchronous SGD with backup workers (Chen, Pan et al. 2016): the last b updates of a round are dropped.

    Args:
        b: how many of the K workers a round does not wait for; their mean is over the others.
        p: mini-batches per round.
    """
    return Method("backup_workers", trigger=Every(p), spare=b)


@paced
def k_sync(spare: int = 1, mu: float = 0.9, rate: float = 0.1, p: int = 1) -> Method:
    """k-synchronous SGD whose server has momentum: inspired by momentum-driven synchronisation (Zhang & Ji 2021).

    The server steps when k = K - spare workers have pushed: m <- mu m + rate mean_k(update), w <- w - m.

    Args:
        spare: how many of the K workers a round does not wait for.
        mu: the server's momentum.
        rate: of the mean update; 1 - mu keeps the length of a step.
        p: mini-batches per round.
    """
    return Method("k_sync", merge=BlockMomentum(Average(), mu, rate), trigger=Every(p), spare=spare)
