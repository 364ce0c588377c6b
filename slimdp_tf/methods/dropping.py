"""Methods that send few entries: the greatest, random ones, those that have grown, those that matter, whole rows."""

from __future__ import annotations

from slimdp_tf.channel import Channel
from slimdp_tf.method import Method
from slimdp_tf.methods.pacing import paced
from slimdp_tf.rules.largest import Relevant, TopK
from slimdp_tf.rules.local_updates import LocalUpdates
from slimdp_tf.rules.memories import Carry, Forget
from slimdp_tf.rules.merges import Average
from slimdp_tf.rules.predictions import Predicted, Unpredicted
from slimdp_tf.rules.quanta import Quantum, Threshold
from slimdp_tf.rules.residuals import MomentumCorrection, Residual
from slimdp_tf.rules.rows import Rows
from slimdp_tf.rules.selectors import Explore, Pushed
from slimdp_tf.rules.triggers import Every

_WEIGHTS = Channel(carries="weights")


@paced
def top_k(R: float = 0.99, p: int = 1, sample: float = 0.0, by: str = "block", drop_pull: bool = True) -> Method:
    """Gradient dropping (Aji & Heafield 2017): the greatest of the update, and of the server's difference on the pull.

    Args:
        R: the share that is dropped, in [0, 1).
        p: mini-batches per round.
        sample: share of the entries the threshold is taken from; 0 finds the greatest exactly.
        by: "block" (one threshold for all that a server holds) or "layer" (one per variable).
        drop_pull: whether the pull is dropped, too, with a residual per worker at the server; or dense weights.
    """
    if not isinstance(drop_pull, bool):
        raise ValueError(f"drop_pull must be True or False. Received: {drop_pull!r}")
    greatest = (TopK(_kept("R", R), sample, by),)
    down = Channel(greatest, memory=Carry()) if drop_pull else _WEIGHTS
    return Method("top_k", up=Channel(greatest, memory=Residual()), down=down, trigger=Every(p))


@paced
def local_combine(
    combine: str = "replace", R: float = 0.99, p: int = 1, share: float = 1.0, average: int = 500, sample: float = 0.0
) -> Method:
    """Gradient dropping with local updates (Aji, Heafield & Bogoychev 2019): workers go on with what was not sent.

    Args:
        combine: "sum", "replace" (the own sent part is not counted twice) or "error" (the residual is used up).
        R: the share that is dropped, of the push and of the pull, in [0, 1).
        p: mini-batches per round.
        share: how much of its own update a worker uses.
        average: rounds after which the workers' weights return to the agreed ones.
        sample: share of the entries the threshold is taken from; 0 finds the greatest exactly.
    """
    greatest = (TopK(_kept("R", R), sample),)
    up, down = Channel(greatest, memory=LocalUpdates(combine, share, average)), Channel(greatest, memory=Carry())
    return Method("local_combine", up=up, down=down, trigger=Every(p))


@paced
def random_k(ratio: float = 0.01, p: int = 1, keys: str = "derived") -> Method:
    """Random entries with error feedback; the pull is the weights. `slim(beta=0, memory="carry")` pulls few, too.

    Args:
        ratio: share of the entries that each worker draws anew in every round.
        p: mini-batches per round.
        keys: "derived" by both ends from the run's seed, or "sent".
    """
    if keys not in ("derived", "sent"):
        raise ValueError(f"keys must be 'derived' or 'sent'. Received: {keys!r}")
    up = Channel((Explore(ratio, keys == "sent"),), memory=Residual())
    return Method("random_k", up=up, down=_WEIGHTS, trigger=Every(p))


@paced
def dgc(
    rho: float = 0.001,
    m: float = 0.9,
    nesterov: bool = False,
    clip: float = 0.0,
    sample: float = 0.01,
    warmup: int = 400,
    p: int = 1,
) -> Method:
    """Deep gradient compression (Lin et al. 2018). The local optimizer must be SGD without momentum.

    Args:
        rho: share of every variable's entries that is sent, in (0, 1].
        m: momentum, before sparsification and masked where entries were sent.
        nesterov: Nesterov's momentum.
        clip: greatest norm of a block's update; 0 does not clip.
        sample: share of the entries the thresholds are taken from.
        warmup: rounds in which the share falls to rho, in 4 stages (the paper: 4 epochs).
        p: mini-batches per round.
    """
    up = Channel((TopK(rho, sample, "layer", warmup),), memory=MomentumCorrection(m, nesterov, clip))
    return Method("dgc", up=up, down=_WEIGHTS, trigger=Every(p))


@paced
def threshold(tau: float = 0.001, p: int = 1) -> Method:
    """Strom 2015: of the entries whose update has grown to tau, one quantum of tau or -tau.

    Args:
        tau: in the unit of an update, learning rate times gradient; depends on the data.
        p: mini-batches per round.
    """
    up = Channel((Threshold(tau),), Quantum(tau), Residual())
    return Method("threshold", up=up, down=_WEIGHTS, trigger=Every(p))


@paced
def relevance(ratio: float = 0.5, least: float = 0.01, p: int = 1) -> Method:
    """Entries by |v| (|w| + mean|w|), more of them from layers where that is more: inspired by MIPD (Zhang 2022).

    Args:
        ratio: share of all entries that is sent.
        least: share of every variable's entries.
        p: mini-batches per round.
    """
    up = Channel((Relevant(ratio, least),), memory=Residual())
    return Method("relevance", up=up, down=_WEIGHTS, trigger=Every(p))


@paced
def predictive(ratio: float = 0.01, a: float = 0.1, gamma: float = 0.9, p: int = 1) -> Method:
    """The greatest entries of what exponential smoothing at both ends misses: inspired by Zhang's thesis (2021).

    Args:
        ratio: share of the entries that is sent.
        a: the smoothing, in (0, 1].
        gamma: how much of the smoothed update is predicted; 0 is error feedback alone.
        p: mini-batches per round.
    """
    up = Channel((TopK(ratio),), memory=Unpredicted(a, gamma))
    return Method("predictive", up=up, down=_WEIGHTS, merge=Predicted(Average(), a, gamma), trigger=Every(p))


@paced
def sampled_rows(m_f: int = 100, m_r: int = 100, tall: int = 1000, p: int = 1) -> Method:
    """Of embeddings the rows that were used, the most frequent and random ones: inspired by Xiao et al. 2017.

    Args:
        m_f: first rows that always travel.
        m_r: random rows of each round.
        tall: rows from which on a variable counts as an embedding.
        p: mini-batches per round.
    """
    down = Channel((Pushed(),), carries="weights")
    return Method("sampled_rows", up=Channel((Rows(m_f, m_r, tall),), memory=Forget()), down=down, trigger=Every(p))


def _kept(name: str, dropped: object) -> float:
    if isinstance(dropped, bool) or not isinstance(dropped, int | float) or not 0.0 <= dropped < 1.0:
        raise ValueError(f"{name}, the share that is dropped, must be within [0, 1). Received: {dropped!r}")
    return 1.0 - dropped
