"""The flag --config: names, mistakes and what several methods share."""

import pytest

from slimdp_tf.cli import config_flag


def read(*arguments):
    argv = ["program", *arguments]
    config_flag.read_arguments(argv)
    return argv


def test_names_become_paths_and_come_first(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    path = config_flag.CONFIGS / "fashion_mnist_mlp.py"
    for name in ("fashion_mnist_mlp", "fashion_mnist_mlp.py", "configs/fashion_mnist_mlp.py", str(path)):
        argv = read("--config.epochs=2", f"--config={name}:quant", "--config.options.bits", "4")
        assert argv == ["program", f"--config={path}:quant", "--config.epochs=2", "--config.options.bits", "4"]
    assert read("--config", "fashion_mnist_mlp") == ["program", f"--config={path}"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--config is needed. Known: fashion_mnist_cnn, fashion_mnist_mlp, googlenet_imagenet, vgg16_imagenet"),
        ([], "Python file. Received: no flags."),
        (["--confg=fashion_mnist_mlp"], "--config is needed. Known: .* Received: --confg=fashion_mnist_mlp"),
        (["--config"], "--config needs a value"),
        (
            ["--config=fashion_mnist_mpl"],
            "Unknown config 'fashion_mnist_mpl'. Known: .* Did you mean 'fashion_mnist_mlp'",
        ),
        (["--config="], "Unknown config ''"),
        (["--config=elsewhere/fashion_mnist_mlp.py"], "Unknown config 'elsewhere/fashion_mnist_mlp.py'"),
        (["--config=fashion_mnist_mlp:slimm"], "Unknown method 'slimm'. Known: plump, quant, slim"),
        (["--config=fashion_mnist_mlp", "--config.epoch=2"], "field of config 'epoch'. .* Did you mean 'epochs'"),
        (["--config=fashion_mnist_mlp:plump", "--config.options.alpha=1"], "field of config.options 'alpha'. Known: p"),
        (["--config=fashion_mnist_mlp", "--config.method=quant"], "chosen by --config=fashion_mnist_mlp:METHOD"),
    ],
)
def test_mistakes_are_answered_with_what_is_known(arguments, message):
    with pytest.raises(ValueError, match=message):
        read(*arguments)


def test_a_file_without_get_config_is_refused(tmp_path):
    (tmp_path / "mine.py").write_text("x = 1\n")
    (tmp_path / "mine.txt").write_text("x = 1\n")
    with pytest.raises(ValueError, match="must have a function get_config"):
        read(f"--config={tmp_path}/mine.py")
    with pytest.raises(ValueError, match="ending .py"):
        read(f"--config={tmp_path}/mine.txt")


PATH = config_flag.CONFIGS / "fashion_mnist_mlp.py"


def test_shared_options_reach_the_methods_that_have_them():
    overrides = {"epochs": 3, "options.p": 4, "options.alpha": 0.2}
    slim = config_flag.make_config(PATH, "slim", {"alpha": 0.4}, overrides)
    plump = config_flag.make_config(PATH, "plump", {}, overrides)
    assert (slim.epochs, slim.options.p, slim.options.alpha, slim.options.q) == (3, 4, 0.4, 100)
    assert plump.options.to_dict() == {"p": 4, "pacing": "sync", "staleness": 4}


def test_a_method_s_own_options_are_checked():
    with pytest.raises(ValueError, match="Unknown option of the method 'quant' 'alpha'. Known: .*bits"):
        config_flag.make_config(PATH, "quant", {"alpha": 0.1}, {})
    with pytest.raises(ValueError, match=r"options.p of the method 'slim' must be of type int. Received: 'x'"):
        config_flag.make_config(PATH, "slim", {"p": "x"}, {})
