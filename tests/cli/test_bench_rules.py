import json

import pytest

from slimdp_tf.cli import bench_rules, program


@pytest.mark.slow
@pytest.mark.parametrize("rule", bench_rules.RULES)
def test_measures_a_rule(rule):
    cost = bench_rules.measure(rule, 2000, repeats=1)
    assert (cost.rule, cost.entries) == (rule, 2000)
    assert cost.ms > 0 and cost.copies > 0
    assert rule in bench_rules.format_line(cost)


def test_says_what_is_sent_and_how_far_off_it_is():
    cost = bench_rules.measure("qsgd_encode", 5120, repeats=1)
    assert cost.sent_bytes == 5120 + 4 * 10  # one byte per value, one float per bucket of 512
    assert 0.005 < cost.error < 0.02  # a level is max|v| / 127, about 3.3 / 127; its rounding error 1 / sqrt(6) of that
    slim = bench_rules.measure("slim_push", 2000, repeats=1)
    assert slim.sent_bytes == 4 * 400 + 24  # alpha = .2 of the values, and the core's signature


def test_sizes_are_numbers():
    assert program.read_sizes(["1e5", "3.45e7", "12"]) == [100_000, 34_500_000, 12]


@pytest.mark.parametrize("word", ["many", "0", "3e9", "-4"])
def test_refuses_other_sizes(word):
    with pytest.raises(ValueError, match=f"sizes must be numbers from 1 to .* Received: '{word}'"):
        program.read_sizes([word])


def test_a_cost_is_plain_data():
    cost = bench_rules.Cost("core", 10, 1.0, 2.0, 3.0)
    assert json.loads(json.dumps(vars(cost)))["copies"] == 2.0
