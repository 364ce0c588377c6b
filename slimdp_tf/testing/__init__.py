"""Contracts of the families of rules, as abstract test classes: derive one, hand it your rules, and pytest runs it.

    class TestMyCodec(slimdp_tf.testing.CodecContract):
        def rules(self):
            return [MyCodec(), MyCodec(levels=3)]

What not every rule of a family promises is an attribute of the class: set it to declare that yours does not.
"""

from slimdp_tf.testing.adoptions import AdoptContract
from slimdp_tf.testing.agreements import AgreementContract
from slimdp_tf.testing.codecs import CodecContract
from slimdp_tf.testing.contract import Contract
from slimdp_tf.testing.memories import MemoryContract
from slimdp_tf.testing.merges import MergeContract
from slimdp_tf.testing.selectors import SelectorContract

__all__ = [
    "AdoptContract",
    "AgreementContract",
    "CodecContract",
    "Contract",
    "MemoryContract",
    "MergeContract",
    "SelectorContract",
]
