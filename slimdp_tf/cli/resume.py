"""Which folder a run belongs into: the same command, started again, goes on with its own run."""

from __future__ import annotations

import enum
import json
import pathlib
from typing import Any

from slimdp_tf.cli.session import choose_run_folder, make_slug
from slimdp_tf.training.config import ConfigDict, format_config

State = enum.Enum("State", "NEW BEGUN COMPLETE")
_MAY_DIFFER = ("workdir", "workers", "ps")  # a run may go on elsewhere, and on another cluster


def find_run(folder: pathlib.Path, config: ConfigDict) -> tuple[pathlib.Path, State]:
    """Returns the run of `config` within `folder`: one that was begun, one that is complete, or a new one.

    Raises:
        ValueError: a run of this method was begun there with another config, and not ended.
    """
    for path in sorted(folder.glob(f"{make_slug(config.method)}*")):
        if not (path / "config.json").is_file():
            continue
        saved = json.loads((path / "config.json").read_text())
        if saved.get("method") != config.method:
            continue
        differences, is_complete = compare_configs(saved, config), (path / "run.json").is_file()
        if not differences:
            return path, State.COMPLETE if is_complete else State.BEGUN
        if not is_complete:
            raise ValueError(
                f"{path} holds a run that has not ended, with another config: {'; '.join(differences)}. Start it again "
                "with its own config, delete the folder, or choose another --workdir."
            )
    return choose_run_folder(folder, config.method), State.NEW


def compare_configs(saved: dict[str, Any], config: ConfigDict) -> list[str]:
    """Returns in words where a config differs from a saved one, apart from where it runs."""
    before, now = _flatten(saved), _flatten(json.loads(format_config(config)))
    names = [name for name in {**before, **now} if name not in _MAY_DIFFER and before.get(name) != now.get(name)]
    return [f"{name} was {before.get(name)!r}, received {now.get(name)!r}" for name in names]


def _flatten(fields: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat = {}
    for name, value in fields.items():
        flat.update(_flatten(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value})
    return flat
