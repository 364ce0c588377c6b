"""Experiments: a config trains through the public interface, and its run says what happened."""

import math

import pytest
import tensorflow as tf

from slimdp_tf import methods
from slimdp_tf.training import experiment as experiments
from slimdp_tf.training.feeds import Feed
from tests.training.stand_ins import LocalStrategy, Play, make_config, make_feed


@pytest.mark.slow
def test_a_run_has_a_point_per_epoch_from_the_records():
    experiment = experiments.Experiment.prepare(make_config(), "mine", make_feed())
    strategy = LocalStrategy(workers=2)
    run = experiment.train(strategy, [Play(strategy)], verbose=0)
    rounds = len(strategy.records)  # this strategy has no workers that divide the 16 examples: 4 batches an epoch
    assert rounds == 8 and run.totals.rounds == 8 and run.totals.steps == 16
    assert [(point.epoch, point.steps) for point in run.points] == [(1, 8), (2, 16)]
    assert run.points[0].mb == pytest.approx(4 * 1.05 / 2) and run.mb_per_worker == pytest.approx(8 * 1.05 / 2)
    assert run.points[1].seconds == pytest.approx(4.0) and run.totals.wait_s == pytest.approx(0.4)
    assert all(math.isfinite(point.val_accuracy) and math.isfinite(point.loss) for point in run.points)
    assert run.accuracy == run.points[-1].val_accuracy
    assert (run.label, run.method, run.config["options"]) == (
        "mine",
        "plump",
        {"p": 1, "pacing": "sync", "staleness": 4},
    )
    assert run.wall_s > 0


@pytest.mark.slow
def test_the_seed_decides_the_weights():
    def train(seed):
        config = make_config()
        config.seed, config.epochs = seed, 1
        strategy = LocalStrategy()
        run = experiments.Experiment.prepare(config, feed=make_feed()).train(strategy, [Play(strategy)], verbose=0)
        return [point.loss for point in run.points]

    assert train(1) == train(1)
    assert train(1) != train(2)


def test_a_function_as_feed_gets_steps_for_every_worker():
    arrays = make_feed()

    def feed_worker(context):
        batches = tf.data.Dataset.from_tensor_slices(arrays.train)
        return batches.shard(context.num_input_pipelines, context.input_pipeline_id).repeat().batch(4)

    feed = Feed(feed_worker, arrays.validation, 16)
    strategy = LocalStrategy(workers=2)
    experiment = experiments.Experiment.prepare(make_config(), feed=feed)
    experiment.train(strategy, [Play(strategy)], verbose=0)
    assert len(strategy.records) == experiment.count_steps(workers=2) == 4  # 16 / (2 workers x 4) x 2 epochs
    experiment.config.steps_per_epoch = 5
    assert experiment.count_steps(workers=2) == 10


def test_steps_of_arrays_count_the_short_last_batch():
    config = make_config()
    config.batch_size, config.epochs = 4, 3
    assert experiments.Experiment.prepare(config, feed=make_feed(18)).count_steps(workers=2) == 3 * 3  # 9 = 4 + 4 + 1


def test_prepare_checks_everything_before_the_data_is_loaded(monkeypatch):
    monkeypatch.setattr(experiments, "build_feed", lambda config: pytest.fail("loaded the data"))
    for name, value, message in [
        ("epochs", 0, "epochs must be at least 1. Received: 0"),
        ("learning_rate", 0.0, "learning_rate must be a number above 0. Received: 0.0"),
        ("optimizer", "sdg", "Unknown optimizer 'sdg'. Known: sgd, .* Did you mean 'sgd'?"),
        ("seed", -1, "seed must be at least 0"),
        ("method", "quant", None),
    ]:
        config = make_config("slim")
        config[name] = value
        with pytest.raises(ValueError, match=message or "Unknown option of the method 'quant' 'alpha'"):
            experiments.Experiment.prepare(config)
    config = make_config("slim")
    config.options.beta = 0.5
    with pytest.raises(ValueError, match="beta"):
        experiments.Experiment.prepare(config)


def test_too_few_examples_are_refused():
    with pytest.raises(ValueError, match="2 workers x batch_size 4 = 8 examples. Received: 7 training"):
        experiments.Experiment.prepare(make_config(), feed=make_feed(7))


def test_the_method_is_built_from_its_options():
    config = make_config("slim")
    config.options.update({"alpha": 0.2, "beta": 0.1, "p": 3})
    assert experiments.build_method(config) == methods.slim(alpha=0.2, beta=0.1, p=3)


def test_the_optimizer_has_what_the_config_says():
    config = make_config()
    config.optimizer, config.learning_rate, config.momentum, config.weight_decay = "sgd", 0.5, 0.9, 0.01
    optimizer = experiments.build_optimizer(config)
    assert (float(optimizer.learning_rate), optimizer.momentum, optimizer.weight_decay) == (0.5, 0.9, 0.01)
    config.warm_up = 5
    rate = experiments.build_optimizer(config)._learning_rate
    assert (float(rate(0)), float(rate(5))) == (0.0, 0.5)
    config.warm_up = 0
    config.optimizer = "adam"
    with pytest.raises(ValueError, match="momentum must be 0 with adam, which has none. Received: 0.9"):
        experiments.build_optimizer(config)


@pytest.mark.parametrize("name", experiments._OPTIMIZERS)
def test_every_known_optimizer_can_be_built(name):
    config = make_config()
    config.optimizer = name
    assert type(experiments.build_optimizer(config)).__name__.lower() == name


def test_the_model_gets_its_options():
    config = make_config()
    assert [layer.units for layer in experiments.build_model(config).layers[2:]] == [8, 10]
