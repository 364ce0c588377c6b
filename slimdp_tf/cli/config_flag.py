"""The flags --config, --data_dir and --workdir, and how a method's config is made of them."""

from __future__ import annotations

import importlib.util
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from absl import flags
from ml_collections import config_flags

from slimdp_tf.training.config import ConfigDict, check_fields, describe_unknown

_PACKAGE = pathlib.Path(__file__).resolve().parents[1]
_FOLDERS = (_PACKAGE / "configs", _PACKAGE.parent / "configs")  # as installed from a wheel, and in a checkout
CONFIGS = next((folder for folder in _FOLDERS if folder.is_dir()), _FOLDERS[0])

_CONFIG = config_flags.DEFINE_config_file(
    "config",
    None,
    "Name of a config in configs/, or path of a Python file with get_config; :METHOD chooses the method.",
)
_DATA_DIR = flags.DEFINE_string("data_dir", None, "Folder with the data; the same as --config.data_dir.")
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder for what the run writes (default: a new one under runs/).")


def read_arguments(argv: list[str]) -> None:
    """Replaces the config's name in `argv` by its path, and checks all that is said about the config.

    Raises:
        ValueError: no config, an unknown one, an unknown method or field; the message lists the known ones.
    """
    place = next((i for i, argument in enumerate(argv) if re.fullmatch(r"--?config(=.*)?", argument)), None)
    if place is None:
        known = f"--config is needed. Known: {', '.join(list_configs())}; or the path of a Python file."
        raise ValueError(f"{known} Received: {' '.join(argv[1:]) or 'no flags'}.")
    if "=" not in argv[place]:
        if place + 1 >= len(argv):
            raise ValueError("--config needs a value, as --config=fashion_mnist_mlp:slim. Received: nothing.")
        argv[place : place + 2] = [f"--config={argv[place + 1]}"]
    name, colon, method = argv[place].partition("=")[2].partition(":")
    path = find_config(name)
    argv.insert(1, f"--config={path}{colon}{method}")  # first: the overrides must come after it
    del argv[place + 1]
    config = load_get_config(path)(*([method] if method else []))
    overrides = [match[2] for match in (re.match(r"--?(no)?config\.([^=]+)", arg) for arg in argv) if match]
    check_fields(config, overrides)
    if "method" in overrides:
        raise ValueError(f"The method is chosen by --config={name}:METHOD. Received: --config.method.")


def read_config() -> ConfigDict:
    """Returns the config of the parsed flags, with --data_dir and --workdir in it."""
    config = _CONFIG.value
    for name, value in list_shared().items():
        config[name] = value
    return config


def read_overrides() -> tuple[pathlib.Path, dict[str, Any]]:
    """Returns the config's file and what the command line changes in it, as dotted path -> value."""
    flag = flags.FLAGS["config"]
    path = config_flags.get_config_filename(flag).partition(":")[0]
    return pathlib.Path(path), {**config_flags.get_override_values(flag), **list_shared()}


def list_shared() -> dict[str, str]:
    """Returns the fields that have a flag of their own and were given one."""
    given = {"data_dir": _DATA_DIR.value, "workdir": _WORKDIR.value}
    return {name: value for name, value in given.items() if value is not None}


def list_configs() -> list[str]:
    """Returns the names of the configs in configs/."""
    return sorted(path.stem for path in CONFIGS.glob("*.py") if not path.stem.startswith("_"))


def find_config(name: str) -> pathlib.Path:
    """Returns the file of a config.

    Args:
        name: a path; or the name of a file in configs/, with or without folder and .py.

    Raises:
        ValueError: there is none; the message lists those that exist.
    """
    path = pathlib.Path(name)
    if path.is_file():
        return path
    found = CONFIGS / f"{path.stem}.py"
    is_plain = path.parent in (pathlib.Path("."), pathlib.Path("configs")) and path.suffix in ("", ".py")
    if not (name and is_plain and found.is_file()):
        raise ValueError(describe_unknown("config", [name], list_configs()))
    return found


def load_get_config(path: pathlib.Path) -> Callable[..., ConfigDict]:
    """Returns the function get_config of a Python file.

    Raises:
        ValueError: the file has no such function.
    """
    spec = importlib.util.spec_from_file_location(f"slimdp_config_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ValueError(f"A config must be a Python file, with the ending .py. Received: {path}.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not callable(getattr(module, "get_config", None)):
        raise ValueError(f"A config must have a function get_config(method). Received: {path}, which has none.")
    return module.get_config


def make_config(
    path: pathlib.Path, method: str, options: Mapping[str, Any], overrides: Mapping[str, Any]
) -> ConfigDict:
    """Returns the config for a method.

    Args:
        path: the config's file.
        method: name of the method.
        options: values for its options; win over `overrides`.
        overrides: dotted path -> value for all methods of a comparison; an option that this method lacks is left out.

    Raises:
        ValueError: an unknown option or a value of another type.
    """
    config = load_get_config(path)(method)
    unknown = set(options) - set(config.options)
    if unknown:
        raise ValueError(describe_unknown(f"option of the method {method!r}", unknown, config.options))
    shared = {key: value for key, value in overrides.items() if _applies(config, key)}
    for key, value in {**shared, **{f"options.{name}": value for name, value in options.items()}}.items():
        try:
            config.update_from_flattened_dict({key: value})
        except TypeError as error:
            kind = type(_look_up(config, key)).__name__
            raise ValueError(f"{key} of the method {method!r} must be of type {kind}. Received: {value!r}.") from error
    return config


def _applies(config: ConfigDict, key: str) -> bool:
    group, _, name = key.partition(".")
    return group != "options" or name in config.options


def _look_up(config: ConfigDict, key: str) -> Any:
    for part in key.split("."):
        config = config[part]
    return config
