"""A convolutional network with BatchNormalization on Fashion-MNIST: 421,930 parameters."""

from slimdp_tf.training import config as configs


def get_config(method: str = "slim") -> configs.ConfigDict:
    """Returns the config for a method of `slimdp_tf.methods`."""
    config = configs.new_config("fashion_mnist_cnn", model="fashion_mnist_cnn", data="fashion_mnist", method=method)
    config.learning_rate = 0.05
    config.batch_size = 32
    config.epochs = 5
    configs.set_rounds(config, minibatches=400)
    return config
