"""The line-up: which contenders there are, and lists of them as people write them.

To add one, write a function `launch(setting, *, option=default, ...) -> list[Program]` and a program that talks as
`task` says; then put a line into `OUTSIDE`, or name the function on the command line: --contender=module:function.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from slimdp_tf import methods
from slimdp_tf.bench.contenders import slimdp
from slimdp_tf.bench.setting import Program, Setting
from slimdp_tf.cli.method_list import MethodCall, read_methods
from slimdp_tf.training.config import describe_unknown

OUTSIDE = {  # name -> module:function
    "tf_ps": "slimdp_tf.bench.contenders.tf_ps:launch",
    "torch_ddp": "slimdp_tf.bench.contenders.torch_ddp:launch_plain",
    "torch_fp16": "slimdp_tf.bench.contenders.torch_ddp:launch_fp16",
    "torch_powersgd": "slimdp_tf.bench.contenders.torch_ddp:launch_powersgd",
    "torch_localsgd": "slimdp_tf.bench.contenders.torch_ddp:launch_localsgd",
}
NEEDS_TORCH = tuple(name for name, place in OUTSIDE.items() if ".torch_ddp:" in place)

_CARRY = "beta=0.0, p=16, memory='carry', average='contributors', explorer_keys='derived'"
METHODS = (
    "plump, plump4=plump(p=4), quant, slim=slim(alpha=0.2, beta=0.1), "
    f"carry10=slim(alpha=0.1, {_CARRY}), carry5=slim(alpha=0.05, {_CARRY}), carry2=slim(alpha=0.02, {_CARRY}), "
    "slim_quant=slim_quant(alpha=0.05, beta=0.0, p=16)"
)


@dataclasses.dataclass(frozen=True)
class Contender:
    """One of the line-up.

    Attributes:
        label: how tables and pictures call it; different from all others'.
        text: which one it is, with its options.
        launch: setting -> the programs to run.
        is_outside: whether it is another system than this package.
    """

    label: str
    text: str
    launch: Callable[[Setting], list[Program]]
    is_outside: bool


def read_contenders(text: str, own: Sequence[str] = ()) -> list[Contender]:
    """Returns the contenders of a comma-separated list and of places module:function.

    Args:
        text: name, name(option=value, ...) or label=name(...), with commas between; names of methods and of `OUTSIDE`.
        own: module:function or label=module:function, one contender each.

    Raises:
        ValueError: an unknown name or option, a value that is not allowed, a label twice.
        ImportError: a module that cannot be imported.
    """
    known = [*methods.names(), *OUTSIDE]
    calls = read_methods(text, known) if text.strip() or not own else []
    contenders = [_find(call, known) for call in calls] + [_read_own(place) for place in own]
    labels = [contender.label for contender in contenders]
    twice = [label for label in labels if labels.count(label) > 1]
    if twice:
        raise ValueError(f"Each contender needs a label of its own, as again=plump. Received twice: {twice[0]}.")
    return contenders


def list_default(has_torch: bool) -> str:
    """Returns the list of all contenders that can run here."""
    outside = [name for name in OUTSIDE if has_torch or name not in NEEDS_TORCH]
    return ", ".join([METHODS, *outside])


def _find(call: MethodCall, known: Sequence[str]) -> Contender:
    written = ", ".join(f"{key}={value!r}" for key, value in call.options.items())
    text = f"{call.name}({written})"
    if call.name in OUTSIDE:
        return Contender(call.label, text, _bind(call.name, _load(OUTSIDE[call.name]), call.options), True)
    if call.name not in known:
        own = "; or your own: --contender=module:function"
        raise ValueError(describe_unknown("contender", [call.name], known) + own)
    _check_options(call.name, [*methods.options(call.name), "overlap"], call.options)
    slimdp.make_method(call.name, call.options)  # refuses values that are not allowed
    return Contender(call.label, text, functools.partial(slimdp.launch, method=call.name, **call.options), False)


def _read_own(place: str) -> Contender:
    label, _, rest = place.rpartition("=")
    module, colon, function = rest.partition(":")
    if not (module and colon and function):
        raise ValueError(f"--contender must be module:function or label=module:function. Received: {place!r}.")
    return Contender(label or function, rest, _bind(rest, _load(rest), {}), True)


def _load(place: str) -> Callable[..., list[Program]]:
    module, _, name = place.partition(":")
    function = getattr(importlib.import_module(module), name, None)
    if not callable(function):
        raise ValueError(f"The module {module} must hold a function {name!r}. Received: {type(function).__name__}.")
    return function


def _bind(
    name: str, function: Callable[..., list[Program]], options: dict[str, Any]
) -> Callable[[Setting], list[Program]]:
    parameters = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    _check_options(name, parameters, options)
    return functools.partial(function, **options)


def _check_options(name: str, known: Sequence[str], options: dict[str, Any]) -> None:
    unknown = [option for option in options if option not in known]
    if unknown:
        raise ValueError(describe_unknown(f"option of {name}", unknown, known))
