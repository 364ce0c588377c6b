"""Methods that write every entry of an update in few bits."""

from __future__ import annotations

from slimdp_tf.channel import Channel
from slimdp_tf.method import Method
from slimdp_tf.methods.pacing import paced
from slimdp_tf.rules.columns import OneBit, Proportion
from slimdp_tf.rules.halves import Half
from slimdp_tf.rules.layers import LloydMax, Ternary
from slimdp_tf.rules.memories import Carry, Forget
from slimdp_tf.rules.merges import Average
from slimdp_tf.rules.residuals import Residual
from slimdp_tf.rules.server_steps import AdaGrad
from slimdp_tf.rules.triggers import Every
from slimdp_tf.types import Codec


@paced
def one_bit(p: int = 1, quantize_pull: bool = True, adagrad: bool = False, rate: float = 0.01) -> Method:
    """1-bit SGD (Seide et al. 2014): a bit per entry and two means per column, the error fed back.

    Args:
        p: mini-batches per round.
        quantize_pull: whether the server's own update is one bit, too, with a residual of its own; or weights.
        adagrad: whether AdaGrad is applied after the aggregation; the workers' learning rate then drops out.
        rate: AdaGrad's learning rate.
    """
    if not isinstance(adagrad, bool):
        raise ValueError(f"adagrad must be True or False. Received: {adagrad!r}")
    merge = AdaGrad(Average(), rate) if adagrad else Average()
    up = Channel(codec=OneBit(), memory=Residual())
    return Method("one_bit", up=up, down=_down(OneBit(), quantize_pull), merge=merge, trigger=Every(p))


@paced
def terngrad(p: int = 1, clip: float = 2.5, shares_scale: bool = True) -> Method:
    """TernGrad (Wen et al. 2017): -s, 0 or s at random, right on average; nothing is fed back.

    Args:
        p: mini-batches per round.
        clip: in standard deviations of a layer; 0 does not clip.
        shares_scale: whether all workers of a round have the greatest s of a layer; without a barrier each has its own.
    """
    return Method("terngrad", up=Channel(codec=Ternary(clip, shares_scale), memory=Forget()), trigger=Every(p))


@paced
def adaptive_quant(pi: int = 64, p: int = 1, sample: int = 128, quantize_pull: bool = True) -> Method:
    """Adaptive quantisation (Dryden et al. 2016): 1/pi of either sign per column as its mean, the error fed back.

    Args:
        pi: one of so many entries is sent.
        p: mini-batches per round.
        sample: rows of a column that its thresholds and means are taken from.
        quantize_pull: whether the server's own update is sent so, too; or weights.
    """
    codec = Proportion(pi, sample)
    up = Channel(codec=codec, memory=Residual())
    return Method("adaptive_quant", up=up, down=_down(codec, quantize_pull), trigger=Every(p))


@paced
def distribution_quant(bits: int = 2, p: int = 1, quantize_pull: bool = False) -> Method:
    """The best levels for each layer's distribution, the error fed back: inspired by MIPD (Zhang 2022).

    Args:
        bits: bits per entry, 1 to 4.
        p: mini-batches per round.
        quantize_pull: whether the server's own update is sent so, too; or weights.
    """
    up = Channel(codec=LloydMax(bits), memory=Residual())
    return Method("distribution_quant", up=up, down=_down(LloydMax(bits), quantize_pull), trigger=Every(p))


@paced
def half(p: int = 1, dtype: str = "bfloat16", quantize_pull: bool = True) -> Method:
    """Updates as floats of 16 bits, the error fed back.

    Args:
        p: mini-batches per round.
        dtype: "bfloat16" or "float16".
        quantize_pull: whether the server's own update is sent so, too; or weights.
    """
    up = Channel(codec=Half(dtype), memory=Residual())
    return Method("half", up=up, down=_down(Half(dtype), quantize_pull), trigger=Every(p))


def _down(codec: Codec, is_quantised: object) -> Channel:
    """Weights as they are; or the server's own update in `codec`, and what it left out with the next one."""
    if not isinstance(is_quantised, bool):
        raise ValueError(f"quantize_pull must be True or False. Received: {is_quantised!r}")
    return Channel(codec=codec, memory=Carry()) if is_quantised else Channel(carries="weights")
