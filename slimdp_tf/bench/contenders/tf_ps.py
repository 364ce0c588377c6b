"""TensorFlow's own asynchronous parameter servers: ParameterServerStrategy and a ClusterCoordinator loop.

As its guide does it: one step per scheduled function, variables on the servers in turn. Each worker's gradient is
applied when it arrives, so that the same learning rate means four steps where a synchronous contender makes one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator

import keras
import tensorflow as tf

from slimdp_tf.bench.contenders.tf_tasks import make_cluster, make_dataset, make_model, start_programs
from slimdp_tf.bench.setting import Program, Setting
from slimdp_tf.bench.task import Task

_WARM_UP_STEPS = 4


def launch(setting: Setting) -> list[Program]:
    """Returns the programs of chief, workers and ps."""
    return start_programs(setting, __name__)


def main(arguments: list[str]) -> None:
    """Trains as the chief; the workers and ps are served by tf_tasks."""
    task = Task.from_environment()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    strategy = tf.distribute.ParameterServerStrategy(make_cluster(arguments[0]))
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        model = make_model()
        optimizer = keras.optimizers.SGD(0.0)
        optimizer.build(model.trainable_variables)
    model.set_weights(task.initial_weights())
    step = make_step(strategy, model, optimizer)

    def make_own_dataset():
        return make_dataset(task, tf.distribute.coordinator.experimental_get_current_worker_index())

    iterator = iter(coordinator.create_per_worker_dataset(make_own_dataset))

    def learn(steps: int) -> None:
        for _ in range(steps * task.workers):
            coordinator.schedule(step, args=(iterator,))
        coordinator.join()

    learn(_WARM_UP_STEPS)  # at rate 0
    optimizer.learning_rate = task.learning_rate
    task.begin(version=f"tensorflow {tf.__version__}, keras {keras.__version__}")
    steps, is_going = 0, True
    while is_going:
        learn(task.every)
        steps += task.every
        is_going = task.pause(steps, model.get_weights)
    os._exit(0)  # TensorFlow's server has threads that never end


def make_step(
    strategy: tf.distribute.Strategy, model: keras.Model, optimizer: keras.optimizers.Optimizer
) -> Callable[[Iterator], None]:
    """Returns the function that a worker runs: one batch, its gradient, applied on the servers."""
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def learn(images: tf.Tensor, labels: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        weights = [weight.value for weight in model.trainable_variables]
        optimizer.apply(tape.gradient(loss, weights), model.trainable_variables)

    return tf.function(lambda iterator: strategy.run(learn, args=next(iterator)))


if __name__ == "__main__":
    main(sys.argv[1:])
