"""Methods that let workers train by themselves for a while: how their models meet."""

from __future__ import annotations

from slimdp_tf.channel import Channel
from slimdp_tf.method import Method
from slimdp_tf.methods.pacing import paced
from slimdp_tf.rules.elastic import Spring, Stay
from slimdp_tf.rules.merges import Average
from slimdp_tf.rules.schedules import After
from slimdp_tf.rules.server_steps import BlockMomentum, OuterNesterov, Scaled
from slimdp_tf.rules.triggers import Every
from slimdp_tf.rules.weights_of_workers import ByData


@paced
def local_sgd(H: int = 16) -> Method:
    """Local SGD, parallel restarted SGD (Stich 2019; Yu, Yang & Zhu 2019): models are averaged every H steps.

    Args:
        H: local steps per round; local momentum is kept.
    """
    return Method("local_sgd", trigger=Every(H))


@paced
def post_local_sgd(steps: int = 1000, H: int = 16) -> Method:
    """Post-local SGD (Lin et al. 2020): synchronous at first, local SGD later.

    Args:
        steps: until then every step is a round (the paper: until the first decay of the learning rate).
        H: local steps per round from then on.
    """
    return Method("post_local_sgd", trigger=After(steps, H))


@paced
def fed_avg(p: int = 16) -> Method:
    """Federated averaging (McMahan et al. 2017) with every worker a client of every round (C = 1).

    Args:
        p: local steps per round: E epochs of a client's data are E times its number of batches. Clients count by the
            steps they did.
    """
    return Method("fed_avg", merge=ByData(), trigger=Every(p))


@paced
def easgd(beta: float = 0.9, tau: int = 10, workers: int = 4) -> Method:
    """Elastic averaging SGD (Zhang et al. 2015), synchronous: the centre is evaluated and saved.

    Args:
        beta: the centre's moving rate, in (0, 1): centre <- (1 - beta) centre + beta mean(x_k).
        tau: local steps per round.
        workers: K, for the workers' moving rate alpha = beta / K.
    """
    return _elastic("easgd", beta, tau, workers)


@paced
def eamsgd(beta: float = 0.9, tau: int = 10, workers: int = 4) -> Method:
    """EASGD for workers with momentum: compile with SGD(momentum=0.99, nesterov=True), as the paper. See `easgd`."""
    return _elastic("eamsgd", beta, tau, workers)


@paced
def bmuf(bm: float = 0.75, blr: float = 1.0, tau: int = 50, nesterov: bool = True) -> Method:
    """Blockwise model-update filtering (Chen & Huo 2016): momentum on what a block of steps did.

    Args:
        bm: block momentum eta, 1 - 1/K in the paper.
        blr: block learning rate zeta.
        tau: local steps per block.
        nesterov: whether workers start from where the momentum leads.
    """
    if not isinstance(nesterov, bool):
        raise ValueError(f"nesterov must be True or False. Received: {nesterov!r}")
    return Method("bmuf", merge=BlockMomentum(Average(), bm, blr, nesterov), trigger=Every(tau))


@paced
def diloco(H: int = 500, lr: float = 0.7, mu: float = 0.9) -> Method:
    """DiLoCo (Douillard et al. 2023): many local steps (of AdamW), then an outer step with Nesterov's momentum.

    Args:
        H: local steps per round.
        lr: outer learning rate.
        mu: outer momentum.
    """
    return Method("diloco", merge=OuterNesterov(Average(), lr, mu), trigger=Every(H))


def _elastic(name: str, beta: float, tau: int, workers: int) -> Method:
    if isinstance(beta, bool) or not isinstance(beta, int | float) or not 0.0 < beta < 1.0:
        raise ValueError(f"beta, the centre's moving rate, must be a number within (0, 1). Received: {beta!r}")
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise ValueError(f"workers must be an integer of at least 1. Received: {workers!r}")
    up, merge = Channel(memory=Spring(beta / workers)), Scaled(Average(), beta)
    return Method(name, up=up, merge=merge, adopt=Stay(), trigger=Every(tau))
