"""The contract of adoptions finds broken ones."""

from __future__ import annotations

import tensorflow as tf

from slimdp_tf.rules.adoptions import Replace
from slimdp_tf.testing import AdoptContract
from tests.testing.breaches import find_breaches


class Centred(Replace):
    """Looks at the other entries."""

    def adopt(self, local, incoming):
        return incoming - tf.reduce_mean(incoming)


class Shrinks(Replace):
    def adopt(self, local, incoming):
        return 0.9 * incoming


class Doubles(Replace):
    def adopt(self, local, incoming):
        return tf.cast(incoming, tf.float64)


def test_keeps_the_good_and_finds_the_broken():
    assert find_breaches(AdoptContract, Replace()) == set()
    for rule in (Centred(), Shrinks(), Doubles()):
        assert find_breaches(AdoptContract, rule) == {"takes_every_entry_by_itself"}
