"""The configs: what the paper says, and that all of them train on small generated data."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import slimdp_tf
from slimdp_tf import methods
from slimdp_tf.cli.config_flag import CONFIGS, list_configs, load_get_config
from slimdp_tf.training.experiment import Experiment, build_method, build_model
from tests.training.stand_ins import write_folders, write_records


def get_config(name, *method):
    return load_get_config(CONFIGS / f"{name}.py")(*method)


@pytest.mark.parametrize("name", list_configs())
def test_every_config_has_every_method(name):
    assert get_config(name).method == "slim"
    for method in methods.names():
        config = get_config(name, method)
        assert config.name == name
        assert build_method(config).name == method


@pytest.mark.parametrize(
    ("name", "alpha", "beta", "minibatches"),
    [("vgg16_imagenet", 0.2, 0.1, 20_000), ("googlenet_imagenet", 0.3, 0.15, 50_000)],
)
def test_slim_has_the_paper_s_settings(name, alpha, beta, minibatches):
    config = get_config(name)
    assert (config.options.alpha, config.options.beta) == (alpha, beta)
    for p in (1, 4):
        config.options.p = p
        assert config.options.q == methods.rounds(minibatches, p)


@pytest.fixture(params=["vgg16_imagenet", "googlenet_imagenet"])
def small(request, tmp_path):
    """A config of an ImageNet model at 1/32 of its width, on 8 images of 32 x 32: records, or folders of images."""
    config = get_config(request.param)
    for split in ("train", "validation"):
        if config.name == "vgg16_imagenet":
            write_records(tmp_path, split, files=2, each=4)
        else:
            write_folders(tmp_path, split, classes=4, each=2)
    config.data_dir = str(tmp_path)
    config.model.image_size, config.model.width, config.model.classes = 32, 1 / 32, 4
    config.workers, config.ps, config.batch_size, config.epochs, config.steps_per_epoch = 2, 1, 2, 1, 2
    return config


@pytest.mark.slow
def test_data_fits_the_model(small):
    experiment = Experiment.prepare(small)
    context = tf.distribute.InputContext(num_input_pipelines=2, input_pipeline_id=1)
    images, labels = next(iter(experiment.feed.train(context)))
    assert images.shape == (2, 32, 32, 3)  # the data has the model's image_size
    assert build_model(small)(images).shape == (2, 4)
    assert set(labels.numpy()) <= set(range(4))
    assert experiment.feed.validation().cardinality() == 4


class WatchWeights(keras.callbacks.Callback):
    """Keeps the trainable weights from before and after training."""

    def on_train_begin(self, logs=None):
        self.before = [w.numpy() for w in self.model.trainable_weights]

    def on_train_end(self, logs=None):
        self.after = [w.numpy() for w in self.model.trainable_weights]


@pytest.mark.cluster
def test_trains_two_rounds_on_a_cluster(small):
    experiment, watching = Experiment.prepare(small), WatchWeights()
    with slimdp_tf.local_cluster(workers=2, ps=1) as cluster:
        strategy = slimdp_tf.SlimDPStrategy(cluster, experiment.method)
        run = experiment.train(strategy, [watching], verbose=0)
    assert (run.totals.rounds, run.totals.steps) == (2, 2)
    assert run.mb_per_worker > 0 and 0 <= run.accuracy <= 1
    assert all(np.isfinite(loss) for point in run.points for loss in (point.loss, point.val_loss)) and run.points
    moved = [np.abs(after - before).max() for before, after in zip(watching.before, watching.after, strict=True)]
    assert np.isfinite(moved).all() and np.mean(np.array(moved) > 0) > 0.9, moved


def test_missing_data_is_said(tmp_path):
    config = get_config("vgg16_imagenet")
    with pytest.raises(FileNotFoundError, match="folder with the images: --data_dir=FOLDER. Received: ''"):
        Experiment.prepare(config)
