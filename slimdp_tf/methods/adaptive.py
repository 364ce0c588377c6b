"""Methods that go by the loss: how often workers meet, or how much each of them counts."""

from __future__ import annotations

from slimdp_tf.method import Method
from slimdp_tf.methods.pacing import paced
from slimdp_tf.rules.events import Drift
from slimdp_tf.rules.merges import Average
from slimdp_tf.rules.schedules import WithLoss
from slimdp_tf.rules.triggers import Every
from slimdp_tf.rules.weights_of_workers import ByLoss


@paced
def adaptive_period(tau: int = 16, every: int = 50) -> Method:
    """AdaComm (Wang & Joshi 2019): models are averaged more often as the loss falls.

    Args:
        tau: local steps of the first rounds.
        every: rounds between two adaptations (the paper: seconds).
    """
    return Method("adaptive_period", trigger=WithLoss(tau, every))


@paced
def loss_weighted(kappa: float = 1.0, least: float = 0.1, most: float = 1.5, p: int = 1) -> Method:
    """Updates count by (mean loss / the worker's loss)^kappa: inspired by SaPus (Zhang 2021), in step with one another.

    Args:
        kappa: how much the loss matters.
        least, most: bounds of a worker's weight.
        p: mini-batches per round.
    """
    return Method("loss_weighted", merge=ByLoss(Average(), kappa, least, most), trigger=Every(p))


def event_triggered(tau: float = 0.01, p: int = 1, most: int = 64, staleness: int = 4) -> Method:
    """Workers push when they have drifted: inspired by SaPus (Zhang et al. 2021). There is no barrier (pacing "async").

    Args:
        tau: |w - z| / |z| from which on a worker pushes, z what it last pulled.
        p: mini-batches between two looks at it.
        most: looks after which it pushes anyway, as it does at the end of an epoch.
        staleness: rounds of p mini-batches that a worker may be ahead of the slowest.
    """
    return Method("event_triggered", trigger=Drift(tau, p, most), pacing="async", staleness=staleness)
