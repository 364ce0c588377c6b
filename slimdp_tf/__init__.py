"""Slim data parallelism for TensorFlow and Keras: the same training, a fraction of the bytes.

method = slimdp_tf.methods.slim(alpha=0.2, beta=0.1, p=4, q=1000)
with slimdp_tf.local_cluster(workers=4, ps=2) as cluster:
    strategy = slimdp_tf.SlimDPStrategy(cluster, method)
    with strategy.scope():
        model = build_model()
        model.compile("sgd", "sparse_categorical_crossentropy")
    model.fit(x, y, batch_size=32, epochs=5)
"""

from slimdp_tf import methods
from slimdp_tf.distribute.calls import ClusterError
from slimdp_tf.distribute.cluster import local_cluster
from slimdp_tf.distribute.refusals import NonFiniteUpdateError
from slimdp_tf.distribute.strategy import SlimDPStrategy
from slimdp_tf.method import Method
from slimdp_tf.simulate import simulate
from slimdp_tf.training import keras_bridge, versions
from slimdp_tf.training.snapshots import Snapshots
from slimdp_tf.version import __version__

keras_bridge.install()
versions.warn_of_others()

__all__ = [
    "ClusterError",
    "Method",
    "NonFiniteUpdateError",
    "SlimDPStrategy",
    "Snapshots",
    "__version__",
    "local_cluster",
    "methods",
    "simulate",
]
