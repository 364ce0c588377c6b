"""Updates that servers refuse: raised after the round, passed over, gone back from, or said."""

import re

import numpy as np
import pytest
import tensorflow as tf

from slimdp_tf import methods
from slimdp_tf.distribute.refusals import NonFiniteUpdateError, Refusals
from slimdp_tf.exchange import Exchange
from tests.cluster import strategy

NAMES = ["worker 0 at a:1", "worker 1 at b:1"]


def test_is_raised_once_and_names_the_worker():
    refusals = Refusals("raise", NAMES)
    refusals.begin(has_snapshots=False)
    refusals.note(7, [1])
    with pytest.raises(NonFiniteUpdateError, match="update of round 7 from worker 1 at b:1 is not finite"):
        refusals.raise_last()
    refusals.raise_last()
    refusals.note(8, [0])
    refusals.begin(has_snapshots=False)
    refusals.raise_last()


@pytest.mark.parametrize(("kind", "wants_rollback"), [("skip", False), ("rollback", True)])
def test_others_are_not_raised(kind, wants_rollback):
    refusals = Refusals(kind, NAMES)
    refusals.note(7, [0, 1])
    refusals.raise_last()
    assert refusals.wants_rollback is wants_rollback
    refusals.begin(has_snapshots=True)
    assert not refusals.wants_rollback


def test_there_must_be_something_to_go_back_to():
    with pytest.raises(ValueError, match="needs snapshots to go back to: slimdp_tf.Snapshots.*Received: neither"):
        Refusals("rollback", NAMES).begin(has_snapshots=False)


# -- on processes -----------------------------------------------------------------------------------------------------

WRONG = {  # in these rounds workers send this of their second block
    2: ("1.keys", lambda keys: keys + 40),
    3: ("1.value", lambda values: values[1:]),
    4: ("signature.keys", lambda signature: signature - [1, 0, 0]),
    5: ("signature.keys", lambda signature: signature + [0, 0, 1]),
    6: ("0.value", lambda values: tf.concat([values, values], 0)),
}
WORDS = {
    2: r"block 1 of the weights: its keys must be .* of the block, which has 32. Received: \d+ 1.keys from ",
    3: r"its vectors must be as Raw\(\) makes them: 0.value of \d+, 1.value of \d+. Received: .*1.value of \d+",
    4: r"signature \(version, length, hash\) of the server: 1, .* Received: 0, ",
    5: r"its keys must have the signature ",
    6: r"0.value of ",
}


@pytest.fixture
def spoiled(monkeypatch):
    """Pushes as `WRONG` says."""
    push = Exchange.push

    def spoil(self, block, state, local, agreed, draw, whole):
        payload, chosen, edits = push(self, block, state, local, agreed, draw, whole)
        for number, (name, change) in WRONG.items() if block == 1 and not whole else ():
            now, sent = tf.equal(agreed["round"], number), payload[name]
            payload[name] = tf.cond(now, lambda sent=sent, change=change: change(sent), lambda sent=sent: sent)
        return payload, chosen, edits

    monkeypatch.setattr(Exchange, "push", spoil)


@pytest.mark.cluster
@pytest.mark.parametrize("pacing", ["sync", "async"])
def test_what_is_wrong_with_a_push_is_said_and_the_weights_are_untouched(spoiled, monkeypatch, caplog, pacing):
    made = strategy(methods.slim(0.5, 0.25, q=20, pacing=pacing))
    monkeypatch.setattr(tf.get_logger(), "propagate", True)
    with made.scope():
        weight = tf.Variable(np.tile(np.float32([9, 0, 0, 0]), 16))  # the core is of both blocks
    batches = iter(made.distribute_datasets_from_function(lambda context: tf.data.Dataset.from_tensors(0.0).repeat()))

    def step(batch):
        weight.assign_add(tf.ones([64]) + batch)

    moved, said = [], []
    for _ in range(9):
        before, known = weight.numpy(), len(caplog.messages)
        made.run(step, (next(batches),))
        moved.append(bool((weight.numpy() != before).any()))
        said.append([text for text in caplog.messages[known:] if "refused" in text])
    assert moved == [number not in WRONG for number in range(9)]
    assert [record.refused for record in made.records] == [2 * (number in WRONG) for number in range(9)]
    for number, words in WORDS.items():
        assert len(said[number]) == 2
        for worker, text in enumerate(sorted(said[number])):
            assert text.startswith(f"worker {worker} at 127.0.0.1:") and f"push of round {number}" in text
            assert re.search(words, text), text
