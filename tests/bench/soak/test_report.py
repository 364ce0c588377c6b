"""The report of a soak: what was tried, what grew, whether it held."""

import csv
import json

from slimdp_tf.bench.soak.report import list_faults, list_growth, write_all
from tests.bench.soak.soaked import make_outcome


def test_a_row_per_kind_of_fault_and_job():
    rows = list_faults(make_outcome())
    assert rows[1:] == [["kill", "worker", "2", "2", "6.0", "8.0", "8"], ["stop", "ps", "1", "0", "-", "-", "0"]]


def test_a_row_per_process():
    rows = list_growth(make_outcome(rate=2.0).growth)
    assert rows[1] == ["chief.0", "75", "555 to 675", "+21.6 %", "20 to 20", "30 to 30", "0", "NO"]


def test_everything_is_written(tmp_path):
    text = write_all(make_outcome(complaints=["It leaks."]), {"seed": 3}, tmp_path)
    for part in (
        "The soak did NOT hold:\nIt leaks.",
        "123 rounds, 7 of them",
        "loss 2.0000, in the end 1.0000",
        "seed 3",
    ):
        assert part in text
    assert (tmp_path / "soak.txt").read_text() == text
    content = json.loads((tmp_path / "soak.json").read_text())
    assert (content["held"], content["complaints"], content["lost_rounds"]) == (False, ["It leaks."], 7)
    assert content["growth"][0]["is_flat"] and content["facts"] == {"seed": 3}
    with open(tmp_path / "faults.csv") as file:
        rows = [(row["kind"], row["task"], row["recovered_s"]) for row in csv.DictReader(file)]
    assert rows[1:] == [("kill", "worker2", "8.0"), ("stop", "ps0", "")]
    assert len((tmp_path / "vitals.csv").read_text().splitlines()) == 41
    assert (tmp_path / "soak.png").read_bytes()[:4] == b"\x89PNG"


def test_a_soak_that_held_says_so(tmp_path):
    assert write_all(make_outcome(), {}, tmp_path).endswith("The soak held.\n")
