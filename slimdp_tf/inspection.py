"""What a server looks at before a push may touch its block: keys, lengths, signature, and that every number is finite.

All of it costs a look at the shapes, and one pass over the floats and over keys that were sent.
"""

from __future__ import annotations

import tensorflow as tf

from slimdp_tf.channel import Parts, is_same
from slimdp_tf.exchange import Exchange
from slimdp_tf.types import Payload, State

# What became of a worker's push; of several reasons to refuse it the greatest is told.
ABSENT, MERGED, NOT_FINITE, WRONG_LENGTHS, WRONG_SIGNATURE, WRONG_KEYS = range(6)
SIGNATURE = "signature.keys"

Facts = dict[str, tf.Tensor]


def read_choice(
    exchange: Exchange, block: int, payload: Payload, agreed: State, draw: tf.Tensor
) -> tuple[Parts, tf.Tensor]:
    """The entries a worker has chosen, per selector, as the server knows them, and whether its keys can be meant.

    Args:
        exchange, block: the method, and the number of the block.
        payload: the worker's, or its keys alone.
        agreed, draw: what the server holds of the block, and the seed of this worker and round.

    Returns:
        The entries, none where a key is that of no entry of the block; and whether none is, bool[].
    """
    up, size = exchange.up(block), exchange.sizes[block]
    parts = exchange.parts_of(block, payload, agreed, draw)
    if not any(selector.keyed for selector in up.selectors):
        return parts, tf.constant(True)
    is_meant = up.are_entries(payload, parts, size)
    return [part[: tf.where(is_meant, tf.size(part), 0)] for part in parts], is_meant


def inspect(
    exchange: Exchange, block: int, payload: Payload, choice: tuple[Parts, tf.Tensor], signature: tf.Tensor, whole: bool
) -> tf.Tensor:
    """What may become of a push: `MERGED`, or why it is refused, i32[].

    Args:
        exchange, block: the method, and the number of the block.
        payload: what the worker sent.
        choice: of `read_choice`.
        signature: the server's, of the keys that the worker is to hold.
        whole: whether every entry was pushed.
    """
    verdict = tf.constant(MERGED)
    for reason, is_right in sorted(_check(exchange, block, payload, choice, signature, whole).items()):
        verdict = tf.where(is_right, verdict, reason)
    return verdict


def _check(exchange, block, payload, choice, signature, whole) -> dict[int, tf.Tensor]:
    """For each reason to refuse a push whether it is none, bool[]."""
    parts, is_meant = choice
    up, size = exchange.up(block), exchange.sizes[block]
    found = [tf.equal(tf.size(payload[name]), length) for name, length in up.lengths(parts, size, whole).items()]
    has_lengths = tf.reduce_all(found) if found else tf.constant(True)
    if hasattr(up.codec, "is_readable"):
        has_lengths = tf.cond(
            has_lengths, lambda: up.is_readable(payload, parts, size, whole), lambda: tf.constant(False)
        )
    is_signed = is_same(payload[SIGNATURE], signature) if SIGNATURE in payload else tf.constant(True)
    return {
        NOT_FINITE: is_finite(payload),
        WRONG_LENGTHS: has_lengths,
        WRONG_SIGNATURE: is_signed,
        WRONG_KEYS: is_meant,
    }


def gather_facts(
    exchange: Exchange, block: int, payload: Payload, choice: tuple[Parts, tf.Tensor], signature: tf.Tensor, whole: bool
) -> Facts:
    """What `explain` needs to say why `inspect` refused a push: a few numbers."""
    checks = _check(exchange, block, payload, choice, signature, whole)
    facts = {f"is right {reason}": is_right for reason, is_right in checks.items()}
    lengths = exchange.up(block).lengths(choice[0], exchange.sizes[block], whole)
    facts |= {f"allowed {name}": tf.cast(length, tf.int64) for name, length in lengths.items()}
    facts |= {f"received {name}": tf.size(tensor, tf.int64) for name, tensor in payload.items()}
    for name, keys in payload.items():
        if name == SIGNATURE:
            facts |= {"theirs": keys, "ours": signature}
        elif name.endswith(".keys"):
            facts[f"ends {name}"] = tf.stack([tf.reduce_min(keys), tf.reduce_max(keys)])
    return facts


def explain(exchange: Exchange, block: int, facts: Facts, verdict: int) -> str:
    """Why a push was refused, in words: what of it, what is allowed, what was received.

    Args:
        exchange, block: the method, and the number of the block.
        facts: of `gather_facts`, fetched.
        verdict: why it was refused; "" if this block is not at fault.
    """
    if verdict == MERGED or bool(facts[f"is right {verdict}"]):
        return ""
    if verdict == NOT_FINITE:
        return "its values must be finite. Received: a nan or an infinity."
    if verdict == WRONG_SIGNATURE:
        theirs, ours = (", ".join(map(str, facts[name].numpy().tolist())) for name in ("theirs", "ours"))
        return f"its keys must have the signature (version, length, hash) of the server: {ours}. Received: {theirs}."
    if verdict == WRONG_KEYS:
        ends = {name[5:]: fact.numpy().tolist() for name, fact in facts.items() if name.startswith("ends ")}
        received = ", ".join(f"{int(facts['received ' + n])} {n} from {a} to {b}" for n, (a, b) in ends.items())
        allowed = f"those of entries of the block, which has {exchange.sizes[block]}"
        return f"its keys must be {allowed}. Received: {received}."
    allowed = ", ".join(f"{n[8:]} of {int(fact)}" for n, fact in facts.items() if n.startswith("allowed "))
    received = ", ".join(f"{n[9:]} of {int(fact)}" for n, fact in facts.items() if n.startswith("received "))
    return f"its vectors must be as {exchange.up(block).codec} makes them: {allowed}. Received: {received}."


def is_finite(payload: Payload) -> tf.Tensor:
    """Whether every float of a payload is finite, bool[]."""
    floats = [tensor for tensor in payload.values() if tensor.dtype.is_floating]
    return tf.reduce_all([tf.constant(True)] + [tf.reduce_all(tf.math.is_finite(tensor)) for tensor in floats])
