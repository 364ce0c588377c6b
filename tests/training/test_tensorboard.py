"""TensorBoard: the files are read back with TensorBoard's own reader."""

import json
import math

import pytest
import tensorflow as tf
from tensorboard.backend.event_processing import event_accumulator
from tensorboard.plugins.hparams import plugin_data_pb2

from slimdp_tf import methods
from slimdp_tf.measure.runs import Run, sum_rounds
from slimdp_tf.training import config as configs
from slimdp_tf.training.tensorboard import RunLog, list_hparams, write_ratio
from tests.cluster import strategy
from tests.training.small_models import compile_linear, make_data, make_linear
from tests.training.stand_ins import LocalStrategy


def make_config():
    config = configs.new_config("try", model="fashion_mnist_mlp", data="fashion_mnist", method="slim")
    config.options.c = 0.5
    return config


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run of two rounds in one epoch, with the ratio added later."""
    path = tmp_path_factory.mktemp("runs") / "slim"
    strategy = LocalStrategy(workers=2, method=methods.slim())
    log = RunLog(path, strategy, make_config())
    log.on_train_begin()
    for batch in range(2):
        strategy.play()
        log.on_train_batch_end(batch, {"loss": 2.0 - batch, "accuracy": 0.25 + batch / 2})
    log.on_epoch_end(0, {"loss": 1.0, "accuracy": 0.75, "val_loss": 1.5, "val_accuracy": 0.625})
    log.on_train_end()
    write_ratio(path, Run("slim", "slim", 2, 1, (), sum_rounds(strategy.records)), 8.5)
    return path


@pytest.fixture(scope="module")
def events(folder):
    reader = event_accumulator.EventAccumulator(str(folder), size_guidance={event_accumulator.TENSORS: 0})
    return reader.Reload()


def read(events, tag):
    return [(event.step, float(tf.make_ndarray(event.tensor_proto))) for event in events.Tensors(tag)]


def test_traffic_time_and_sizes_per_round(events):
    expected = {
        "traffic/push_mb": 0.3,  # 0.6 MB over 2 workers
        "traffic/pull_mb": 0.2,
        "traffic/keys_mb": 0.025,
        "time/round_s": 0.5,
        "time/compute_s": 0.3,
        "time/exchange_s": 0.15,
        "time/wait_s": 0.05,
        "slim/core_entries": 30,
        "slim/explorer_entries": 20.5,
        "slim/key_cache_hits": 2,
        "slim/key_cache_misses": 0,
        "slim/key_cache_mismatches": 0,
        "cluster/workers": 2,
        "cluster/refused": 0,
        "cluster/missed": 0,
        "ps_mb/0": 1.050007,
    }
    for tag, value in expected.items():
        assert read(events, tag) == [(2, pytest.approx(value)), (4, pytest.approx(value))], tag


def test_staleness_is_shown_where_there_is_some(events, tmp_path):
    shown = {f"async/{kind}" for kind in ("staleness_mean", "staleness_max", "late")}
    assert not shown & set(events.Tags()["tensors"])
    strategy = LocalStrategy(method=methods.plump(pacing="async"))
    log = RunLog(tmp_path, strategy)
    log.on_train_begin()
    strategy.play()
    log.on_train_end()
    assert shown <= set(event_accumulator.EventAccumulator(str(tmp_path)).Reload().Tags()["tensors"])


def test_curves_against_steps_bytes_and_time(events):
    for axis, places in {"by_step": (2, 4), "by_kb_sent": (525, 1050), "by_ms": (500, 1000)}.items():
        assert read(events, f"{axis}/loss") == [(places[0], 2.0), (places[1], 1.0)]
        assert read(events, f"{axis}/accuracy") == [(places[0], 0.25), (places[1], 0.75)]
        assert read(events, f"{axis}/val_accuracy") == [(places[1], 0.625)]
        assert read(events, f"{axis}/val_loss") == [(places[1], 1.5)]


def test_tags_say_their_unit(events):
    assert "MB (1e6 bytes) per worker" in events.SummaryMetadata("traffic/push_mb").summary_description
    assert "kB (1000 bytes)" in events.SummaryMetadata("by_kb_sent/loss").summary_description
    assert events.SummaryMetadata("by_ms/loss").plugin_data.plugin_name == "scalars"


def test_results_for_the_comparison_of_runs(events):
    results = {tag: read(events, tag)[0][1] for tag in events.Tags()["tensors"] if tag.startswith("result/")}
    assert results == pytest.approx(
        {
            "result/accuracy": 0.625,
            "result/mb_per_worker": 1.05,
            "result/seconds": 1.0,
            "result/wait_s": 0.1,
            "result/ratio_to_baseline": 8.5,
        }
    )


def test_hyper_parameters(events):
    content = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    data = plugin_data_pb2.HParamsPluginData.FromString(content)
    start = data.session_start_info
    values = {name: getattr(value, value.WhichOneof("kind")) for name, value in start.hparams.items()}
    assert start.group_name == "slim"
    shared = {"optimizer": "sgd", "learning_rate": 0.1, "batch_size": 32, "epochs": 5, "workers": 4, "ps": 2, "seed": 0}
    rules = {"alpha": 0.3, "beta": 0.15, "c": "0.5", "q": 1000, "explorer_keys": "sent"}
    kept = {"memory": "forget", "average": "workers"}
    paced = {"p": 1, "pacing": "sync", "staleness": 4}
    assert values == {"method": "slim", "model": "fashion_mnist_mlp", **shared, **rules, **kept, **paced}
    content = events.SummaryMetadata("_hparams_/experiment").plugin_data.content
    experiment = plugin_data_pb2.HParamsPluginData.FromString(content).experiment
    columns = {info.name for info in experiment.hparam_infos}
    assert {"alpha", "bits", "p"} <= columns  # those of all methods: one page compares them
    assert {info.name.tag for info in experiment.metric_infos} >= {"result/accuracy", "result/ratio_to_baseline"}


def test_the_config_is_saved_and_shown(folder, events):
    assert json.loads((folder / "config.json").read_text())["options"]["c"] == 0.5
    text = tf.make_ndarray(events.Tensors("config")[0].tensor_proto).item().decode()
    assert '"alpha": 0.3' in text and "Method(name='slim'" in text


def test_without_a_config_the_method_alone_is_named():
    assert list_hparams(methods.quant(), None) == {"method": "quant"}


def test_a_second_fit_goes_on_where_the_first_ended(tmp_path):
    strategy = LocalStrategy()
    log = RunLog(tmp_path, strategy)
    strategy.play()  # a round before training is counted, though there is no file to write it to
    for _ in range(2):
        log.on_train_begin()
        strategy.play()
        log.on_train_batch_end(0, {"loss": 1.0})
        log.on_epoch_end(0, {"loss": 1.0})
        log.on_train_end()
    reader = event_accumulator.EventAccumulator(str(tmp_path)).Reload()
    assert [step for step, _ in read(reader, "by_step/loss")] == [4, 6]
    assert len(list(tmp_path.glob("events*"))) == 1


def test_an_unknown_ratio_is_not_written(tmp_path):
    write_ratio(tmp_path, Run("a", "a", 1, 1, (), sum_rounds([])), math.nan)
    assert not list(tmp_path.iterdir())


# -- a real run -------------------------------------------------------------------------------------------------------

OF_EACH_ROUND = [
    *(f"traffic/{kind}_mb" for kind in ("push", "pull", "keys")),
    *(f"time/{kind}_s" for kind in ("round", "compute", "exchange", "wait")),
    *(f"slim/{kind}" for kind in ("core_entries", "explorer_entries", "key_cache_hits", "key_cache_misses")),
    *(f"cluster/{kind}" for kind in ("workers", "refused", "missed")),
    "ps_mb/0",
]


@pytest.mark.cluster
def test_a_run_on_a_cluster_is_written_whole(tmp_path):
    under = strategy(methods.slim(alpha=0.5, beta=0.25, p=2, q=3), workers=2, ps=1)
    model = compile_linear(under, model=lambda: make_linear(8, 20), metrics=["accuracy"])
    x, y = make_data(2 * 12 * 4, 8, 20)
    model.fit(
        x, y, batch_size=4, epochs=2, validation_data=(x[:8], y[:8]), callbacks=[RunLog(tmp_path, under)], verbose=0
    )
    events = event_accumulator.EventAccumulator(str(tmp_path), size_guidance={event_accumulator.TENSORS: 0}).Reload()
    found = {tag: read(events, tag) for tag in OF_EACH_ROUND}
    steps = [record.steps for record in under.records]
    assert steps == list(range(2, 26, 2))
    for tag, points in found.items():
        assert [step for step, _ in points] == steps, tag

    def add_up(tag: str) -> float:
        return sum(value for _, value in found[tag])

    for kind in ("push", "pull", "keys"):
        moved = getattr(under.traffic, f"{kind}_mb")
        assert moved > 0 and 2 * add_up(f"traffic/{kind}_mb") == pytest.approx(moved, rel=1e-5)
    assert add_up("ps_mb/0") == pytest.approx(under.traffic.ps_bytes[0] / 1e6, rel=1e-5)
    for name in ("round_s", "compute_s", "exchange_s", "wait_s"):
        expected = sum(getattr(record, name) for record in under.records)
        assert expected > 0 and add_up(f"time/{name}") == pytest.approx(expected, rel=1e-4)
    entries = model.count_params()
    assert {value for _, value in found["slim/core_entries"]} == {entries // 4}
    assert max(value for _, value in found["slim/explorer_entries"]) == entries // 4
    assert add_up("slim/key_cache_hits") == sum(record.cache_hits for record in under.records) > 0
    kb = 1000 * under.traffic.exchange_mb / 2
    for axis, end in {"by_step": 24, "by_kb_sent": kb, "by_ms": 1000 * add_up("time/round_s")}.items():
        for name in ("loss", "accuracy"):
            curve = read(events, f"{axis}/{name}")
            assert len(curve) == 12 and curve[-1][0] == pytest.approx(end, abs=1), (axis, name)
            assert len(read(events, f"{axis}/val_{name}")) == 2
    assert read(events, "by_step/loss")[-1][1] < read(events, "by_step/loss")[0][1]
