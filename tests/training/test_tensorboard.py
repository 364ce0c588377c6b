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
        "cluster/workers": 2,
        "cluster/refused": 0,
        "async/staleness_mean": 0,
        "async/staleness_max": 0,
        "async/late": 0,
        "cluster/missed": 0,
        "ps_mb/0": 1.050007,
    }
    for tag, value in expected.items():
        assert read(events, tag) == [(2, pytest.approx(value)), (4, pytest.approx(value))], tag


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
    values = {name: value.string_value or value.number_value for name, value in start.hparams.items()}
    assert start.group_name == "slim"
    assert values["method"] == "slim" and values["alpha"] == 0.3 and values["q"] == 1000 and values["c"] == "0.5"
    assert values["learning_rate"] == 0.1 and values["model"] == "fashion_mnist_mlp"
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
