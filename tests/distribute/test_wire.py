"""The bytes that are counted against the bytes that crossed: 2 workers and 2 servers in a network namespace.

`wire_rounds.py` trains there by `fit` and reads, after every round, the interface's counter and the kernel's counters
of the connections. Nothing is subtracted for framing: what crossed contains TCP and IP headers (interface only), gRPC
and protobuf framing, the requests that ask for each tensor, the chief's calls of one function per worker and one merge,
the workers' reports, and, in a round that chooses a core, what the servers tell one another to choose it (32 kB).
A model of 25 entries shows how much that is: it is printed as "empty".
"""

import json
import subprocess
import sys

import pytest

from tests import sources
from tests.distribute.namespaces import why_not
from tests.distribute.wire_rounds import ALPHA, BETA, EMPTY, METHODS, PS, WORKERS, Q

pytestmark = [pytest.mark.cluster, pytest.mark.flaky(reruns=0)]

WITHIN = 0.02
ORDINARY = [*range(Q + 1, 2 * Q - 1), *range(2 * Q + 1, 3 * Q - 1)]  # between them: a whole round, and one with keys
WHOLE, RENEWED = 2 * Q - 1, 2 * Q
LEVEL = 1 / 4 * (1 + 4 / 512)  # words per entry in QSGD, 8 bit, bucket 512
SIGNATURES = 2 * WORKERS * PS * 3 * 8  # bytes: with every push and with every pull, per worker and block
CHOOSING = [name for name, method in METHODS.items() if method.agreement.period]


def measure_wire(path, seconds: float, *arguments: str) -> dict:
    """What `wire_rounds` measures in a namespace of its own, within `seconds`."""
    if reason := why_not():
        pytest.skip(f"the wire cannot be measured: network namespaces are not permitted here ({reason})")
    command = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command += [sys.executable, "-m", "tests.distribute.wire_rounds", str(path), *arguments]
    run = subprocess.run(command, cwd=sources.ROOT, capture_output=True, text=True, timeout=seconds)
    if run.returncode:
        pytest.fail(f"wire_rounds ended with code {run.returncode}:\n{run.stderr[-4000:]}")
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    measured = measure_wire(tmp_path_factory.mktemp("wire") / "found.json", 280)
    _print_table(measured)
    return measured


def _mean(rows: list[dict], rounds: list[int], *path: str) -> float:
    """Mean over rounds of one figure of the rows."""
    total = 0.0
    for number in rounds:
        value = rows[number]
        for name in path:
            value = value[name]
        total += value
    return total / len(rounds)


def _figures(rows: list[dict], rounds: list[int]) -> tuple[dict[str, float], dict[str, float]]:
    """Counted and crossed, mean bytes per round of all workers."""
    counted = {name: _mean(rows, rounds, "counted", name) for name in ("push", "pull", "keys")}
    crossed = {way: _mean(rows, rounds, "crossed", way) for way in ("lo", "worker>ps", "ps>worker")}
    return counted, crossed


def _print_table(measured: dict) -> None:
    print(f"\nBytes per round, {WORKERS} workers and {PS} servers, n = {measured['plump']['n']:,}")
    print(f"{'':24}{'counted':>47} | {'crossed':>35} | {'lo /':>7} | {'empty':>7}")
    print(
        f"{'method':16}{'rounds':8}{'push':>11}{'pull':>12}{'keys':>12}{'all':>12} | "
        f"{'worker>ps':>11}{'ps>worker':>12}{'lo':>12} | {'counted':>7} | {'lo':>7}"
    )
    for name, values in measured.items():
        kinds = {"ordinary": ORDINARY, "whole": [WHOLE], "renewed": [RENEWED]}
        for kind, rounds in kinds.items() if name in CHOOSING else [("ordinary", ORDINARY)]:
            counted, crossed = _figures(values["rounds"], rounds)
            total = sum(counted.values())
            empty = f"{_figures(values['empty'], rounds)[1]['lo']:,.0f}" if name in EMPTY else "-"
            print(
                f"{name:16}{kind:8}{counted['push']:11,.0f}{counted['pull']:12,.0f}{counted['keys']:12,.0f}{total:12,.0f}"
                f" | {crossed['worker>ps']:11,.0f}{crossed['ps>worker']:12,.0f}{crossed['lo']:12,.0f}"
                f" | {crossed['lo'] / total - 1:+7.2%} | {empty:>7}"
            )
    for visit, values in measured["plump"]["visits"].items():
        ways = {way: count for way, count in values["crossed"].items() if "chief" in way}
        print(f"the chief, weights {visit}: counted {values['counted']:,}, crossed {ways}")


for_each_method = pytest.mark.parametrize("name", METHODS)


@for_each_method
def test_the_interface_moves_what_is_counted(found, name):
    counted, crossed = _figures(found[name]["rounds"], ORDINARY)
    assert crossed["lo"] == pytest.approx(sum(counted.values()), rel=WITHIN)


@for_each_method
def test_workers_send_the_push_and_servers_the_pull(found, name):
    counted, crossed = _figures(found[name]["rounds"], ORDINARY)
    assert crossed["worker>ps"] == pytest.approx(counted["push"] + counted["keys"] - SIGNATURES / 2, rel=WITHIN)
    assert crossed["ps>worker"] == pytest.approx(counted["pull"] + SIGNATURES / 2, rel=WITHIN)


def test_explorer_keys_are_what_derived_keys_save(found):
    counted, crossed = _figures(found["slim"]["rounds"], ORDINARY)
    without, crossed_without = _figures(found["slim, derived"]["rounds"], ORDINARY)
    assert crossed["worker>ps"] - crossed_without["worker>ps"] == pytest.approx(
        counted["keys"] - without["keys"], rel=WITHIN
    )
    assert crossed["ps>worker"] == pytest.approx(crossed_without["ps>worker"], rel=1e-3)  # none of them in the pull


@pytest.mark.parametrize("name", CHOOSING)
def test_a_new_core_sends_its_keys_once(found, name):
    rows = found[name]["rounds"]
    assert [rows[number]["misses"] for number in (*ORDINARY, WHOLE, RENEWED)] == [0] * (len(ORDINARY) + 1) + [
        WORKERS * PS
    ]
    ordinary, crossed_ordinary = _figures(rows, ORDINARY)
    renewed, crossed = _figures(rows, [RENEWED])
    listed = renewed["keys"] - ordinary["keys"]
    assert listed == pytest.approx(WORKERS * 4 * BETA * found[name]["n"], rel=WITHIN)
    assert crossed["ps>worker"] - crossed_ordinary["ps>worker"] == pytest.approx(listed, rel=WITHIN)
    assert crossed["lo"] == pytest.approx(sum(renewed.values()), rel=WITHIN)


@pytest.mark.parametrize("name", CHOOSING)
def test_a_whole_round(found, name):
    n, (counted, crossed) = found[name]["n"], _figures(found[name]["rounds"], [WHOLE])
    is_keyed, is_coded = name == "slim", name == "slim_quant"
    words = (LEVEL if is_coded else 1.0) + (ALPHA - BETA if is_keyed else 0.0) + ALPHA  # push, its keys, pull
    assert sum(counted.values()) == pytest.approx(WORKERS * 4 * words * n, rel=WITHIN)
    assert crossed["worker>ps"] == pytest.approx(counted["push"] + counted["keys"], rel=WITHIN)
    assert crossed["ps>worker"] == pytest.approx(counted["pull"], rel=WITHIN)
    assert crossed["lo"] == pytest.approx(sum(counted.values()), rel=WITHIN)  # choosing the core included


FORMULAS = {  # methods.md 1.4: words per entry of the model, of one worker in an ordinary round
    "plump": {"push": 1.0, "pull": 1.0, "keys": 0.0},
    "quant": {"push": LEVEL, "pull": 1.0, "keys": 0.0},
    "quant, pull too": {"push": LEVEL, "pull": LEVEL, "keys": 0.0},
    "slim": {"push": ALPHA, "pull": ALPHA, "keys": ALPHA - BETA},  # together (3 alpha - beta) n
    "slim, derived": {"push": ALPHA, "pull": ALPHA, "keys": 0.0},
    "slim_quant": {"push": ALPHA * LEVEL, "pull": ALPHA, "keys": 0.0},
}


@for_each_method
def test_counts_are_the_formulas(found, name):
    n, (counted, crossed) = found[name]["n"], _figures(found[name]["rounds"], ORDINARY)
    assert n >= 1e6
    for part, words in FORMULAS[name].items():
        assert counted[part] == pytest.approx(WORKERS * 4 * words * n, rel=WITHIN, abs=SIGNATURES), part
    assert crossed["lo"] == pytest.approx(WORKERS * 4 * sum(FORMULAS[name].values()) * n, rel=WITHIN)


@pytest.mark.parametrize("name", EMPTY)
def test_an_empty_round_is_small(found, name):
    assert 0 < _figures(found[name]["empty"], ORDINARY)[1]["lo"] < 80_000


@for_each_method
def test_the_chief_moves_next_to_nothing(found, name):
    """One call per worker and one merge, and their reports: no weights, however large the model."""
    for number in ORDINARY:
        crossed = found[name]["rounds"][number]["crossed"]
        assert crossed["chief>worker"] + crossed["chief>ps"] + crossed["worker>chief"] + crossed["ps>chief"] < 40_000


def test_the_chief_moves_weights_when_asked(found):
    n, visits = found["plump"]["n"], found["plump"]["visits"]
    assert visits["read"]["counted"] == 4 * n
    assert visits["read"]["crossed"]["ps>chief"] == pytest.approx(4 * n, rel=WITHIN)
    assert visits["set"]["crossed"]["chief>ps"] == pytest.approx(4 * n, rel=WITHIN)
    assert visits["set"]["counted"] == pytest.approx(4 * n, rel=WITHIN)
