"""Methods that go by the loss: how often workers meet, or how much each of them counts."""

from __future__ import annotations

from slimdp_tf.method import Method
from slimdp_tf.rules.merges import Average
from slimdp_tf.rules.schedules import WithLoss
from slimdp_tf.rules.triggers import Every
from slimdp_tf.rules.weights_of_workers import ByLoss


def adaptive_period(tau: int = 16, every: int = 50) -> Method:
    """AdaComm (Wang & Joshi 2019): models are averaged more often as the loss falls.

    Args:
        tau: local steps of the first rounds.
        every: rounds between two adaptations (the paper: seconds).
    """
    return Method("adaptive_period", trigger=WithLoss(tau, every))


def loss_weighted(kappa: float = 1.0, least: float = 0.1, most: float = 1.5, p: int = 1) -> Method:
    """Updates count by (mean loss / the worker's loss)^kappa: inspired by SaPus (Zhang 2021), in step with one another.

    Args:
        kappa: how much the loss matters.
        least, most: bounds of a worker's weight.
        p: mini-batches per round.
    """
    return Method("loss_weighted", merge=ByLoss(Average(), kappa, least, most), trigger=Every(p))
