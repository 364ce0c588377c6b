"""Quant-DP: updates in QSGD (Alistarh et al. 2017; 8 bit and buckets of 512 as in the Slim-DP paper, section 4)."""

from __future__ import annotations

from slimdp_tf.channel import Channel
from slimdp_tf.method import Method
from slimdp_tf.methods.pacing import paced
from slimdp_tf.rules.codecs import Qsgd
from slimdp_tf.rules.memories import Carry
from slimdp_tf.rules.triggers import Every


@paced
def quant(p: int = 1, bits: int = 8, bucket: int = 512, quantize_pull: bool = False) -> Method:
    """Quant-DP.

    Args:
        p: mini-batches per round.
        bits: bits per level, its sign included, 2 to 8.
        bucket: values per scale.
        quantize_pull: False pulls weights as 32-bit floats (the paper quantises updates only); True sends the
            server's own update in QSGD, and what the rounding left out with the next one.
    """
    if not isinstance(quantize_pull, bool):
        raise ValueError(f"quantize_pull must be True or False. Received: {quantize_pull!r}")
    codec = Qsgd(bits, bucket)
    down = Channel(codec=codec, memory=Carry()) if quantize_pull else Channel(carries="weights")
    return Method("quant", up=Channel(codec=codec), down=down, trigger=Every(p))
