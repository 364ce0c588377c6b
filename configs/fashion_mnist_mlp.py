"""A multilayer perceptron on Fashion-MNIST: 269,322 parameters, minutes on a laptop."""

from slimdp_tf.training import config as configs


def get_config(method: str = "slim") -> configs.ConfigDict:
    """Returns the config for a method of `slimdp_tf.methods`."""
    config = configs.new_config("fashion_mnist_mlp", model="fashion_mnist_mlp", data="fashion_mnist", method=method)
    config.learning_rate = 0.1
    config.batch_size = 32
    config.epochs = 5
    configs.set_rounds(config, minibatches=400)  # of a few thousand: the core follows the training
    return config
