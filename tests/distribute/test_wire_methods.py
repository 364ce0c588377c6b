"""The bytes that are counted against those that crossed an interface, for methods that `test_wire.py` leaves out.

Nothing is taken off for framing, but for methods that move so little that it shows (`wire_rounds.SMALL`): of these it
is what a model of 25 entries moves in as many rounds.
"""

import pytest

from slimdp_tf import methods
from tests.distribute.test_wire import measure_wire
from tests.distribute.wire_rounds import METHODS, OTHERS

WITHIN = 0.02


def test_no_method_is_forgotten():
    measured = {method.name for method in (*METHODS.values(), *OTHERS.values())}
    assert measured >= {getattr(methods, name)().name for name in methods.names()}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    measured = measure_wire(tmp_path_factory.mktemp("wire") / "found.json", 580, "others")
    print(f"\n{'method':20}{'counted':>14}{'crossed':>14}{'crossed /':>11}")
    for name, moved in measured.items():
        counted, crossed = moved["counted"], moved["crossed"]
        print(f"{name:20}{counted:14,}{crossed:14,}{crossed / counted - 1:+11.2%}")
    return measured


@pytest.mark.cluster
@pytest.mark.flaky(reruns=0)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", OTHERS)
def test_the_interface_moves_what_is_counted(found, name):
    assert found[name]["crossed"] == pytest.approx(found[name]["counted"], rel=WITHIN)
