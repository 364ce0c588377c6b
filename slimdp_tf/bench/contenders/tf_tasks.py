"""What contenders on TensorFlow's parameter servers have in common: tasks that serve, the model, the data.

tf_tasks.py JOB INDEX CLUSTER serves one task until the chief has ended.
"""

from __future__ import annotations

import json
import sys

import keras
import tensorflow as tf

from slimdp_tf.bench.setting import Program, Setting
from slimdp_tf.bench.task import IMAGES, LABELS, PIXELS, Task
from slimdp_tf.distribute.serve import serve

_SHUFFLED = 15_000  # examples: the whole shard of one of four workers


def start_programs(setting: Setting, module: str, *arguments: str) -> list[Program]:
    """Returns a program that serves for each worker and ps, and `module` on the chief as the one that reports."""
    cluster = json.dumps(setting.cluster)
    programs = [
        Program(host, setting.run_module(__name__, job, str(index), cluster))
        for job, hosts in (("worker", setting.worker_hosts), ("ps", setting.ps_hosts))
        for index, host in enumerate(hosts)
    ]
    return [*programs, Program("chief", setting.run_module(module, cluster, *arguments), is_reporting=True)]


def make_cluster(cluster: str) -> tf.distribute.cluster_resolver.ClusterResolver:
    """Returns the chief's view of a cluster that is written as JSON."""
    spec = tf.train.ClusterSpec(json.loads(cluster))
    return tf.distribute.cluster_resolver.SimpleClusterResolver(spec, task_type="chief", task_id=0, rpc_layer="grpc")


def make_model() -> keras.Model:
    """Returns the MLP of the work; it ends with logits."""
    hidden = [keras.layers.Dense(256, activation="relu") for _ in range(2)]
    return keras.Sequential([keras.Input((PIXELS,)), *hidden, keras.layers.Dense(10)])


def make_dataset(task: Task, worker: int | tf.Tensor) -> tf.data.Dataset:
    """Returns a worker's batches (images f32[batch, 784] in 0..1, labels i32[batch]), shuffled, without end."""

    def read(file: tuple[str, int], size: int) -> tf.data.Dataset:
        path, header = task.find(file[0]), file[1]
        records = tf.data.FixedLengthRecordDataset(path, size, header_bytes=header, compression_type="GZIP")
        return records.shard(task.workers, tf.cast(worker, tf.int64))

    def decode(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        pixels = tf.reshape(tf.io.decode_raw(images, tf.uint8), [task.batch, PIXELS])
        return tf.cast(pixels, tf.float32) / 255.0, tf.cast(tf.io.decode_raw(labels, tf.uint8)[:, 0], tf.int32)

    examples = tf.data.Dataset.zip((read(IMAGES, PIXELS), read(LABELS, 1))).cache()
    examples = examples.shuffle(_SHUFFLED, seed=task.seed, reshuffle_each_iteration=True).repeat()
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    options.autotune.enabled = False
    return examples.batch(task.batch, drop_remainder=True).map(decode).prefetch(2).with_options(options)


if __name__ == "__main__":
    serve(json.loads(sys.argv[3]), sys.argv[1], int(sys.argv[2]), threads=1)
