"""Replace takes the pulled value."""

from __future__ import annotations

import tensorflow as tf

from slimdp_tf.rules.adoptions import Replace
from slimdp_tf.testing import AdoptContract


class TestReplace(AdoptContract):
    def rules(self):
        return [Replace()]


def test_replace_takes_the_pulled_value():
    assert Replace().adopt(tf.constant([1.0, 2.0]), tf.constant([3.0, 4.0])).numpy().tolist() == [3.0, 4.0]
