"""What each rule costs: time as a multiple of copying the same floats, bytes sent, error made.

    tools/bench_rules --sizes=1e5,1e6,1e7,3.45e7 --rules=core,slim_push,qsgd_encode,qsgd_decode

Every timing of a rule stands between two timings of the copy, and the ratio is the median over the repetitions: the
machine may be shared.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import time
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from absl import flags

from slimdp_tf import methods
from slimdp_tf.cli.program import check_folder, check_no_arguments, explaining, read_sizes, run_program
from slimdp_tf.exchange import Exchange
from slimdp_tf.method import Method
from slimdp_tf.rules.agreements import SignificantCore
from slimdp_tf.rules.codecs import Qsgd
from slimdp_tf.rules.merges import Average
from slimdp_tf.types import Entries, Note, reduced

_SIZES = flags.DEFINE_list("sizes", ["1e5", "1e6", "1e7", "3.45e7"], "Entries n of the block, one or more.")
_RULES = flags.DEFINE_list("rules", ["all"], "Which rules; all of them by default.")
_REPEATS = flags.DEFINE_integer("repeats", 7, "Timings per rule and size.", lower_bound=1)
_JSON = flags.DEFINE_string("json", None, "Where to write the figures as JSON.")


@dataclasses.dataclass(frozen=True)
class Cost:
    """What one rule costs on n entries: see `COLUMNS`."""

    rule: str
    entries: int
    ms: float
    copies: float
    gb_per_s: float
    sent_bytes: int | None = None
    error: float | None = None


COLUMNS = {
    "rule": "rule",
    "entries": "n",
    "ms": "ms",
    "copies": "x copy",
    "gb_per_s": "GB/s",
    "sent_bytes": "bytes sent",
    "error": "relative error",
}


@dataclasses.dataclass(frozen=True)
class Work:
    """A rule made ready to run on a block.

    Attributes:
        run: does it once; what it returns is not looked at.
        sent_bytes: bytes of the payload, None where nothing is sent.
        error: ||decoded - value|| / ||value||, None where nothing is decoded.
    """

    run: Callable[[], object]
    sent_bytes: int | None = None
    error: float | None = None


def select_core(value: tf.Tensor, update: tf.Tensor) -> Work:
    """The core of beta = 0.1 over the block (SignificantCore.refresh)."""
    rule = SignificantCore(0.1, 1000)
    here = contextlib.nullcontext()
    refresh = tf.function(lambda v, u: rule.refresh([v], [u], lambda j: here)[0], autograph=False)
    return Work(lambda: refresh(value, update))


def push_slim(value: tf.Tensor, update: tf.Tensor) -> Work:
    """Choosing, gathering and packing the communication set of slim at alpha .2, beta .1, keys derived."""
    return _push(methods.slim(0.2, 0.1, memory="carry", explorer_keys="derived"), value, update)


def push_slim_quant(value: tf.Tensor, update: tf.Tensor) -> Work:
    """The same in QSGD."""
    return _push(methods.slim_quant(0.2, 0.1), value, update)


def _push(method: Method, value: tf.Tensor, update: tf.Tensor) -> Work:
    size = int(value.shape[0])
    exchange = Exchange(method, (size,))
    core = tf.cast(tf.range(0, size, 10), tf.int32)
    agreed = exchange.agree([core], 1)[0]
    draw = exchange.draw(3, 0)

    def push(local, anchor):
        return exchange.push(0, {"anchor": anchor}, local, agreed, draw, False)[0]

    traced, anchor = tf.function(push, autograph=False), value + update
    payload = traced(value, anchor)
    return Work(lambda: traced(value, anchor), sum(t.numpy().nbytes for t in payload.values()))


def encode_qsgd(value: tf.Tensor, update: tf.Tensor) -> Work:
    """QSGD, 8 bit, buckets of 512: encoding."""
    rule, seed = Qsgd(), tf.constant([1, 2])
    encode = tf.function(rule.encode, autograph=False)
    payload = encode(update, seed)
    decoded = rule.decode(payload, int(update.shape[0]))
    error = float(tf.norm(decoded - update) / tf.norm(update))
    return Work(lambda: encode(update, seed), sum(t.numpy().nbytes for t in payload.values()), error)


def decode_qsgd(value: tf.Tensor, update: tf.Tensor) -> Work:
    """QSGD, 8 bit, buckets of 512: decoding."""
    rule = Qsgd()
    payload = rule.encode(update, tf.constant([1, 2]))
    decode = tf.function(lambda p: rule.decode(p, int(update.shape[0])), autograph=False)
    return Work(lambda: decode(payload))


def merge_workers(value: tf.Tensor, update: tf.Tensor) -> Work:
    """Average over 4 workers that sent a fifth of the entries each, applied to the block."""
    return _merge(Average("workers"), value, update)


def merge_contributors(value: tf.Tensor, update: tf.Tensor) -> Work:
    """The same over those that sent an entry."""
    return _merge(Average("contributors"), value, update)


def _merge(rule: Average, value: tf.Tensor, update: tf.Tensor) -> Work:
    note = Note(tf.constant(True), tf.constant(0.0), tf.constant(1))
    indices = [tf.cast(tf.range(k, int(value.shape[0]), 5), tf.int32) for k in (0, 1, 0, 2)]
    values = [tf.gather(update, index) for index in indices]

    def merge(block, indices, values):
        incoming = [Entries(i, v) for i, v in zip(indices, values)]
        for increment in rule.merge({}, block, incoming, [note] * len(incoming))[0]:
            block = reduced(block, increment)
        return block

    traced = tf.function(merge, autograph=False)
    return Work(lambda: traced(value, indices, values))


RULES: dict[str, Callable[[tf.Tensor, tf.Tensor], Work]] = {
    "core": select_core,
    "slim_push": push_slim,
    "slim_quant_push": push_slim_quant,
    "qsgd_encode": encode_qsgd,
    "qsgd_decode": decode_qsgd,
    "merge_workers": merge_workers,
    "merge_contributors": merge_contributors,
}


def measure(rule: str, entries: int, repeats: int) -> Cost:
    """Times a rule on a block of normal values, between timings of a copy of the block."""
    rng = np.random.default_rng(0)
    value, update = (tf.constant(rng.standard_normal(entries, np.float32)) for _ in range(2))
    work = RULES[rule](value, update)
    source, target = value.numpy(), np.empty(entries, np.float32)
    work.run()
    np.copyto(target, source)
    seconds, ratios = [], []
    for _ in range(repeats):
        before = _timed(lambda: np.copyto(target, source))
        seconds.append(_timed(work.run))
        after = _timed(lambda: np.copyto(target, source))
        ratios.append(seconds[-1] / ((before + after) / 2))
    median = float(np.median(seconds))
    return Cost(
        rule, entries, 1e3 * median, float(np.median(ratios)), 4 * entries / median / 1e9, work.sent_bytes, work.error
    )


def _timed(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def format_line(cost: Cost) -> str:
    """One line of the table."""
    sent = "-" if cost.sent_bytes is None else f"{cost.sent_bytes:,}"
    error = "-" if cost.error is None else f"{cost.error:.1e}"
    figures = f"{cost.entries:>12,}{cost.ms:>10.2f}{cost.copies:>9.1f}{cost.gb_per_s:>8.2f}"
    return f"{cost.rule:<20}{figures}{sent:>14}{error:>16}"


def main(arguments: Sequence[str]) -> int:
    """Measures the rules of the flags."""
    check_no_arguments(arguments)
    with explaining():
        check_folder(_JSON.value)
        sizes = read_sizes(_SIZES.value)
        rules = list(RULES) if _RULES.value == ["all"] else _RULES.value
        unknown = sorted(set(rules) - set(RULES))
        if unknown:
            raise ValueError(f"rules must be of {', '.join(RULES)}. Received: {', '.join(unknown)}")
    names = list(COLUMNS.values())
    print(f"{names[0]:<20}{names[1]:>12}{names[2]:>10}{names[3]:>9}{names[4]:>8}{names[5]:>14}{names[6]:>16}")
    costs = []
    for size in sizes:
        for rule in rules:
            costs.append(measure(rule, size, _REPEATS.value))
            print(format_line(costs[-1]), flush=True)
    if _JSON.value:
        pathlib.Path(_JSON.value).write_text(json.dumps([dataclasses.asdict(cost) for cost in costs], indent=1))
    return 0


def run() -> None:
    """The program slimdp-bench-rules."""
    run_program(main)


if __name__ == "__main__":
    run()
