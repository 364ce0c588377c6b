"""VGG-16 on ImageNet, with alpha, beta and q of the Slim-DP paper (section 4). Needs --config.data_dir."""

from slimdp_tf.training import config as configs


def get_config(method: str = "slim") -> configs.ConfigDict:
    """Returns the config for a method of `slimdp_tf.methods`.

    Batch size, learning rate and epochs are not in the paper; they are the usual ones for this network.
    """
    config = configs.new_config("vgg16_imagenet", model="vgg16", data="image_files", method=method)
    config.data.image_size = config.model.get_ref("image_size")
    config.learning_rate = 0.01
    config.momentum = 0.9
    config.weight_decay = 5e-4
    config.batch_size = 32
    config.epochs = 74
    configs.set_options(config, alpha=0.2, beta=0.1)
    configs.set_rounds(config, minibatches=20_000)
    return config
