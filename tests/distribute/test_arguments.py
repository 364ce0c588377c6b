"""What a strategy may be made with."""

import pytest

from slimdp_tf import methods
from slimdp_tf.distribute.arguments import check_arguments


def test_takes_what_can_be_used():
    check_arguments(None, 0, "raise", False, 60.0)
    check_arguments(methods.slim(), 7, "rollback", True, 1, 0.5)


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (("slim", 0, "raise", False, 1), TypeError, "method must be one of slimdp_tf.methods"),
        ((None, True, "raise", False, 1), ValueError, "seed must be an integer of at least 0. Received: True"),
        ((None, -1, "raise", False, 1), ValueError, "seed must be an integer of at least 0. Received: -1"),
        ((None, 0, "stop", False, 1), ValueError, "one of 'raise', 'skip', 'rollback'. Received: 'stop'"),
        ((None, 0, "raise", "yes", 1), TypeError, "overlap must be True or False. Received: 'yes'"),
        ((None, 0, "skip", False, 1, 0), ValueError, "must be positive. Received: .1, 0."),
    ],
)
def test_refuses_in_words(arguments, kind, message):
    with pytest.raises(kind, match=message):
        check_arguments(*arguments)
