"""Snapshots where every worker has rounds of its own: what goes on from one is what would have come without it."""

import numpy as np
import pytest

import slimdp_tf
from slimdp_tf import methods
from slimdp_tf.distribute.arrival_held import ArrivalHeld
from slimdp_tf.distribute.roles import Role
from slimdp_tf.distribute.snapshots import Keeper
from tests.distribute.one_process import Drill
from tests.distribute.test_arrivals import ASYNC, make_drill, run_epoch, wait_for
from tests.distribute.test_rounds import FLAT, MOVES, START, move

pytestmark = pytest.mark.slow

ROUNDS, SAVED, LEAD = 9, 4, ASYNC["staleness"]
SLIM = methods.slim(0.5, 0.25, p=2, q=3, memory="carry", average="contributors", **ASYNC)
METHODS = [SLIM, methods.quant(bucket=4, quantize_pull=True, **ASYNC), methods.local_combine("error", 0.7, **ASYNC)]


def save_ahead(drill: Drill, folder) -> Keeper:
    """A snapshot in mid-epoch, when every worker is as far ahead of what was asked for as it may be."""
    for left in range(ROUNDS - 1, ROUNDS - 1 - SAVED, -1):
        drill.run(ahead=left * drill.method.p)
    workers = len(drill.rounds.workers)
    wait_for(lambda: len(drill.rounds.merging.order) == workers * (SAVED + LEAD))
    keeper = Keeper(drill.rounds, folder)
    keeper.save(lambda lead: {"lead": lead})
    keeper.file.finish()
    return keeper


def resume(folder, method, workers: int = 2, ps: int = 2, moves=MOVES) -> tuple[Drill, dict]:
    """A run that goes on, and the counters that it goes on from."""
    drill = make_drill(method, ps, np.resize(moves, (workers, moves.shape[1])))
    keeper = Keeper(drill.rounds, folder)
    keeper.restore(snapshot := keeper.last())
    return drill, snapshot.about


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_goes_on_as_the_simulation_in_the_order_observed(method, tmp_path, caplog):
    first = make_drill(method)
    keeper = save_ahead(first, tmp_path)
    resumed, about = resume(tmp_path, method)
    saved = SAVED + LEAD
    assert (about["round"], about["steps"], keeper.saved_round) == (saved, saved * method.p, saved)
    assert about["position"] == {"lead": LEAD * method.p}
    assert [lane["number"] for lane in about["lanes"]] == [saved, saved]
    np.testing.assert_array_equal(resumed.values(), first.values())
    assert resumed.loss.numpy() == 2 * saved * method.p

    run_epoch(resumed, ROUNDS - saved)
    for left in reversed(range(ROUNDS - SAVED)):  # taking one changes nothing
        first.run(ahead=left * method.p)
    orders = [first.rounds.merging.order[: 2 * saved] + resumed.rounds.merging.order, first.rounds.merging.order]
    for drill, order in zip((resumed, first), orders):
        assert sorted(order) == [0] * ROUNDS + [1] * ROUNDS
        known = {"seed": 3, "shapes": [v.shape for v in START], "arrivals": order}
        expected = slimdp_tf.simulate(method, FLAT, move, 1, 2, 2, **known)
        np.testing.assert_allclose(drill.values(), expected.weights, atol=1e-6)
        assert (drill.rounds.round, drill.rounds.steps) == (ROUNDS, ROUNDS * method.p)
        assert drill.loss.numpy() == 2 * ROUNDS * method.p
        assert [record.refused for record in drill.rounds.records] == [0] * len(drill.rounds.records)
    assert caplog.text == ""


@pytest.mark.parametrize("method", [methods.plump(**ASYNC), SLIM], ids=lambda method: method.name)
def test_one_worker_alone_goes_on_bit_for_bit(method, tmp_path):
    whole = make_drill(method, moves=MOVES[:1])
    run_epoch(whole, ROUNDS)
    save_ahead(make_drill(method, moves=MOVES[:1]), tmp_path)
    resumed, about = resume(tmp_path, method, workers=1)
    run_epoch(resumed, ROUNDS - about["round"])
    np.testing.assert_array_equal(resumed.values(), whole.values())
    assert resumed.loss.numpy() == whole.loss.numpy()


@pytest.mark.parametrize(("workers", "ps"), [(1, 3), (3, 1)])
def test_goes_on_with_another_number_of_workers_and_servers(workers, ps, tmp_path, caplog):
    first = make_drill(SLIM)
    save_ahead(first, tmp_path)
    resumed, about = resume(tmp_path, SLIM, workers, ps)
    np.testing.assert_array_equal(resumed.values(), first.values())
    held = [ArrivalHeld(drill.rounds.cache).read_servers() for drill in (first, resumed)]
    assert len(held[0]["weight/core"]) == 3
    for name in ("weight/core", "weight/core_before", "weight/version", "weight/waiting"):
        np.testing.assert_array_equal(*(of[name] for of in held))
    run_epoch(resumed, 4)
    assert sorted(resumed.rounds.merging.order) == sorted([*range(workers)] * 4)
    assert resumed.rounds.round == about["round"] + 4
    assert [record.refused for record in resumed.rounds.records] == [0] * 4
    assert np.isfinite(resumed.values()).all()
    expected = {1: "what workers [1] had not sent yet is lost", 3: "workers [2] have no state in it"}[workers]
    assert expected in caplog.text and "begin anew" not in caplog.text


def test_what_is_read_is_what_is_put_back(tmp_path):
    drill = make_drill(SLIM)
    run_epoch(drill, 4)
    drill.rounds.rest()
    held = ArrivalHeld(drill.rounds.cache)
    servers, workers = held.read_servers(), held.read_workers()
    kept = {"value", "version", "core", "core_before", "waiting", "shadow/0/anchor", "shadow/1/anchor"}
    kept |= {f"{name}/{k}" for name in ("chosen", "told", "noted") for k in range(2)}
    shadows = {name for name in kept if name.startswith("shadow")}
    assert kept - shadows <= {name.removeprefix("weight/") for name in servers} <= kept
    assert servers["weight/version"] >= 1 and len(servers["weight/chosen/1"]) > 0
    run_epoch(drill, 3), drill.rounds.rest()
    assert held.write_servers(servers, 0) == []
    assert held.write_workers(workers, set(Role)) == []
    for name, array in held.read_servers().items():
        np.testing.assert_array_equal(array, servers[name])
