"""Configs: everything that decides a run, in one locked and typed ConfigDict.

`options`, `model` and `data` of a config hold every parameter of the chosen method's factory, model's builder and
data's feed, with the defaults that stand in their signatures; so an unknown name fails, and the known ones are listed.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import json
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ml_collections import config_dict

from slimdp_tf import methods
from slimdp_tf.training.feeds import FEEDS
from slimdp_tf.training.models import BUILDERS

ConfigDict = config_dict.ConfigDict


def new_config(name: str, model: str, data: str, method: str = "slim") -> ConfigDict:
    """Returns a locked config; its fields can be changed, to values of the same type, and none can be added.

    Args:
        name: of the experiment.
        model: name of a builder in `models`.
        data: name of a feed in `feeds`.
        method: name of a factory in `slimdp_tf.methods`, or dotted name of one elsewhere (my_package.my_method).

    Raises:
        ValueError: an unknown name; the message lists the known ones.
    """
    config = ConfigDict(
        {
            "name": name,
            "method": method,
            "options": describe(find_method(method)),
            "model": {"name": model, **describe(find(model, BUILDERS, "model"))},
            "data": {"name": data, **describe(find(data, FEEDS, "data"))},
            "data_dir": "",
            "optimizer": "sgd",
            "learning_rate": 0.1,
            "warm_up": 0,  # mini-batches in which the learning rate rises from 0; 0: none
            "momentum": 0.0,
            "weight_decay": 0.0,
            "batch_size": 32,  # per worker
            "epochs": 5,
            "steps_per_epoch": 0,  # mini-batches per worker; 0: all of the data
            "validation_steps": 0,  # batches; 0: all of the data
            "workers": 4,
            "ps": 2,
            "overlap": False,  # whether a round's exchange runs while the next one trains
            "seed": 0,
            "workdir": "",
        }
    )
    return config.lock()


def describe(function: Callable) -> dict[str, Any]:
    """Returns the parameters that a function gives a default, as fields of a config.

    A parameter of one type keeps it; one that may have several ("auto" or a float) takes any.
    """
    fields = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.default is inspect.Parameter.empty:
            continue
        is_open = parameter.default is None or "|" in str(parameter.annotation)
        fields[parameter.name] = (
            config_dict.FieldReference(parameter.default, field_type=object) if is_open else parameter.default
        )
    return fields


def find_method(name: str) -> Callable:
    """Returns a method's factory by its name in `slimdp_tf.methods`, or by a dotted name.

    Raises:
        ValueError: there is none; the message lists the known ones.
    """
    module, _, attribute = name.rpartition(".")
    if not module:
        return find(name, {known: getattr(methods, known) for known in methods.names()}, "method")
    try:
        factory = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"A method with a dot must be the dotted name of a function to import. Received: {name!r} ({error})."
        ) from error
    return factory


def find(name: str, known: Mapping[str, Any], what: str) -> Any:
    """Returns `known[name]`; otherwise raises a ValueError that lists the known names and guesses what was meant."""
    if name not in known:
        raise ValueError(describe_unknown(what, [name], known))
    return known[name]


def describe_unknown(what: str, received: Iterable[str], known: Iterable[str]) -> str:
    """Returns the message for names that are not known, with the known ones and the nearest."""
    received, known = sorted(received), list(known)
    near = difflib.get_close_matches(received[0], known, n=1)
    guess = f" Did you mean {near[0]!r}?" if near else ""
    return f"Unknown {what} {', '.join(map(repr, received))}. Known: {', '.join(known) or 'none'}.{guess}"


def call(function: Callable, options: Mapping[str, Any], what: str, **more: Any) -> Any:
    """Returns `function(**options, **more)` after checking that it has parameters of these names.

    Args:
        function: a factory, builder or feed.
        options: fields of a config; a field "name" is left out.
        what: what the message calls them, as "option of the method slim".
        more: arguments that do not come from a config.
    """
    chosen = {key: value for key, value in options.items() if key != "name"}
    known = inspect.signature(function).parameters
    unknown = set(chosen) - set(known)
    if unknown:
        raise ValueError(describe_unknown(what, unknown, [key for key in known if key not in more]))
    return function(**chosen, **more)


def set_rounds(config: ConfigDict, minibatches: int) -> None:
    """Makes q, in rounds, follow from a number of mini-batches and p: ceil(minibatches / p), also when p is changed.

    Nothing is done for a method without p and q. Setting q itself afterwards wins.
    """
    if "p" in config.options and "q" in config.options:
        p = config.options.get_ref("p")
        with config.unlocked():
            del config.options.q
            config.options.q = (p + (minibatches - 1)) // p


def set_options(config: ConfigDict, **values: Any) -> None:
    """Sets those of the options that the config's method has."""
    for name, value in values.items():
        if name in config.options:
            config.options[name] = value


def check_fields(config: ConfigDict, paths: Iterable[str]) -> None:
    """Raises a ValueError when one of the dotted paths is no field of the config, listing what is there."""
    for path in paths:
        here: Any = config
        walked = "config"
        for part in path.split("."):
            if not isinstance(here, ConfigDict) or part not in here:
                known = list(here.keys()) if isinstance(here, ConfigDict) else []
                raise ValueError(describe_unknown(f"field of {walked}", [part], known) + _hint(config, walked))
            here, walked = here[part], f"{walked}.{part}"


def format_config(config: ConfigDict) -> str:
    """Returns the resolved config as JSON."""
    return json.dumps(config.to_dict(), indent=2, default=str)


def save_config(config: ConfigDict, path: str | pathlib.Path) -> None:
    """Writes the resolved config as JSON, making the folder when there is none."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(format_config(config) + "\n")


def _hint(config: ConfigDict, walked: str) -> str:
    if walked != "config.options":
        return ""
    return f" These are the options of {config.method!r}; another method is chosen by --config=FILE:METHOD."
