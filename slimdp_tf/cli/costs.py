"""What rounds of methods cost where no link limits them, found by running them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from slimdp_tf.distribute.strategy import SlimDPStrategy
from slimdp_tf.distribute.transport import there_and_back
from slimdp_tf.measure.record import RoundRecord
from slimdp_tf.method import Method

_LINK_ENTRIES = 1 << 22
_WARM_UP = 4  # rounds


@dataclasses.dataclass(frozen=True)
class Costs:
    """Seconds of methods where no link limits them.

    Attributes:
        step_s: method -> seconds of one mini-batch.
        exchange_s: method -> seconds of a round without its steps.
        rate: bit/s from worker 0 to ps 0 and back, inf where it was not measured.
    """

    step_s: dict[Method, float]
    exchange_s: dict[Method, float]
    rate: float


def measure(
    cluster: Any, chosen: Sequence[Method], build: Callable[[], keras.Model], entries: int, batch: int, rounds: int
) -> Costs:
    """Fits a new model of `build` by every method, and moves weights between a worker and a ps.

    Args:
        cluster: a resolver, None for the cluster of TF_CONFIG.
        chosen: methods.
        build: makes the model, under a strategy's scope.
        entries: n of the model.
        batch: examples of a mini-batch; they are zeros.
        rounds: of each method.
    """
    step_s, exchange_s = {}, {}
    for method in chosen:
        records = fit_rounds(SlimDPStrategy(cluster, method), build, batch, rounds)
        step_s[method] = float(np.median([record.compute_s / record.steps_in_round for record in records]))
        exchange_s[method] = float(np.median([record.round_s - record.compute_s for record in records]))
    return Costs(step_s, exchange_s, _time_link(min(entries, _LINK_ENTRIES), rounds))


def fit_rounds(
    strategy: SlimDPStrategy, build: Callable[[], keras.Model], batch: int, rounds: int
) -> list[RoundRecord]:
    """Fits a model on zeros; the records of `rounds` rounds, after some in which functions are traced."""
    with strategy.scope():
        model = build()
        model.compile(keras.optimizers.SGD(1e-6), "mse")
    examples = batch * strategy.method.p * (rounds + _WARM_UP) * strategy.workers
    x = np.zeros((examples, *model.input_shape[1:]), model.inputs[0].dtype)
    y = np.zeros((examples, *model.output_shape[1:]), np.float32)
    model.fit(x, y, batch_size=batch, verbose=0)
    return strategy.records[_WARM_UP:]


def _time_link(entries: int, rounds: int) -> float:
    """bit/s between worker 0 and ps 0, there and back."""
    move, seconds = there_and_back(entries, True), []
    for _ in range(_WARM_UP + rounds):
        started = time.perf_counter()
        move()
        seconds.append(time.perf_counter() - started)
    return 2 * 32 * entries / float(np.median(seconds[_WARM_UP:]))
