"""Configs: typed, locked, and unknown names answered with the known ones."""

import json

import pytest
from ml_collections import config_dict

from slimdp_tf import methods
from slimdp_tf.training import config as configs


def make(method="slim"):
    return configs.new_config("try", model="fashion_mnist_mlp", data="fashion_mnist", method=method)


@pytest.mark.parametrize("method", methods.names())
def test_options_are_the_factory_s_parameters(method):
    assert make(method).options.to_dict() == methods.options(method)


def test_model_and_data_have_their_builder_s_parameters():
    config = make()
    assert config.model.to_dict() == {"name": "fashion_mnist_mlp", "hidden": (256, 256), "classes": 10}
    assert config.data.to_dict() == {"name": "fashion_mnist", "train_examples": 0, "test_examples": 0}


def test_types_are_kept_and_fields_cannot_be_added():
    config = make()
    config.options.alpha = 1  # a whole number is a float
    with pytest.raises(TypeError):
        config.options.p = "two"
    with pytest.raises(AttributeError):
        config.options.gamma = 1


def test_an_option_of_several_types_takes_them():
    config = make()
    for value in ("auto", 0.5, 2):
        config.options.c = value
        assert config.options.c == value


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "slimm"}, "Unknown method 'slimm'. Known: plump, quant, .* Did you mean 'slim'?"),
        ({"model": "vgg"}, "Unknown model 'vgg'. Known: fashion_mnist_mlp"),
        ({"data": "mnist"}, "Unknown data 'mnist'. Known: fashion_mnist, image_files"),
        ({"method": "no_such_module.method"}, "dotted name of a function to import. Received: 'no_such_module.method'"),
        ({"method": "slimdp_tf.methods.nothing"}, "dotted name of a function"),
    ],
)
def test_unknown_names_are_answered_with_the_known_ones(arguments, message):
    known = {"model": "fashion_mnist_mlp", "data": "fashion_mnist"}
    with pytest.raises(ValueError, match=message):
        configs.new_config("try", **{**known, **arguments})


def test_a_dotted_name_finds_a_method_elsewhere():
    assert configs.find_method("slimdp_tf.methods.slim") is methods.slim


def test_q_follows_p_until_it_is_set():
    config = make()
    configs.set_rounds(config, minibatches=20_000)
    for p in (1, 3, 7):
        config.options.p = p
        assert config.options.q == methods.rounds(20_000, p)
    config.options.q = 5
    config.options.p = 2
    assert config.options.q == 5
    assert isinstance(config.to_dict()["options"]["q"], int)


def test_rounds_and_options_pass_by_methods_without_them():
    config = make("plump")
    configs.set_rounds(config, minibatches=100)
    configs.set_options(config, alpha=0.2, p=4)
    assert config.options.to_dict() == {"p": 4, "pacing": "sync", "staleness": 4}


def test_call_names_the_unknown_and_the_known():
    assert configs.call(methods.slim, {"name": "x", "alpha": 0.2}, "option").up == methods.slim(alpha=0.2).up
    with pytest.raises(ValueError, match="Unknown option of 'plump' 'alpha'. Known: p."):
        configs.call(methods.plump, {"alpha": 0.2}, "option of 'plump'")


def test_wrong_fields_are_named_with_the_level_they_miss():
    config = make()
    configs.check_fields(config, ["epochs", "options.alpha", "model.hidden"])
    with pytest.raises(ValueError, match="Unknown field of config 'epoch'.* Did you mean 'epochs'?"):
        configs.check_fields(config, ["epoch"])
    with pytest.raises(ValueError, match=r"field of config.options 'bits'. Known: .*alpha.*--config=FILE:METHOD"):
        configs.check_fields(config, ["options.bits"])
    with pytest.raises(ValueError, match="field of config.epochs 'x'. Known: none"):
        configs.check_fields(config, ["epochs.x"])


def test_describe_leaves_out_what_has_no_default():
    def build(units, width: float = 1.0, name: str | None = None):
        return units, width, name

    fields = configs.describe(build)
    assert list(fields) == ["width", "name"]
    config = config_dict.ConfigDict(fields)
    config.name = "wide"
    assert config.name == "wide"


def test_the_saved_config_is_the_resolved_one(tmp_path):
    config = make()
    configs.set_rounds(config, minibatches=100)
    config.options.p = 4
    configs.save_config(config, tmp_path / "new" / "config.json")
    content = json.loads((tmp_path / "new" / "config.json").read_text())
    assert content["options"]["q"] == 25 and content["model"]["hidden"] == [256, 256]
    assert content == json.loads(configs.format_config(config))
