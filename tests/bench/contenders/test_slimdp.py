"""The contender of this package: what it starts, and how its callback talks. Its run: tests/bench/test_run.py."""

import json
import types

import pytest

from slimdp_tf.bench.contenders import slimdp
from slimdp_tf.bench.setting import Setting


def test_the_chief_gets_the_method():
    chief = slimdp.launch(Setting(1, 1), method="slim", alpha=0.1, beta=0.05)[-1]
    assert chief.command[2] == "slimdp_tf.bench.contenders.slimdp"
    assert json.loads(chief.command[-1]) == {"method": "slim", "options": {"alpha": 0.1, "beta": 0.05}}


@pytest.fixture
def talk():
    said = []

    def pause(steps, weights, **seconds):
        said.append((steps, weights(), seconds))
        return steps < 96

    task = types.SimpleNamespace(every=48, begin=lambda **about: said.append(about), pause=pause)
    listeners = []
    strategy = types.SimpleNamespace(on_round=listeners.append, method="slim()")
    talk = slimdp.Talk(task, strategy)
    talk.set_model(types.SimpleNamespace(get_weights=lambda: ["w"], stop_training=False))
    talk.said, talk.listeners = said, listeners
    return talk


def make_record():
    return types.SimpleNamespace(compute_s=2.0, exchange_s=1.0, wait_s=0.5)


def test_talks_at_the_end_of_every_epoch(talk):
    talk.on_train_begin()
    assert talk.said[0]["method"] == "'slim()'" and "slimdp_tf" in talk.said[0]["version"]
    for hear in talk.listeners * 2:
        hear(make_record())
    talk.on_epoch_end(0)
    assert talk.said[1] == (48, ["w"], {"compute_s": 4.0, "exchange_s": 2.0, "wait_s": 1.0})  # warming up is left out
    assert not talk.model.stop_training
    talk.on_epoch_end(1)
    assert talk.said[2][0] == 96 and talk.model.stop_training
