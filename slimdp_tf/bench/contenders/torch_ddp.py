"""PyTorch's DistributedDataParallel over gloo: plain, or with one of its own communication hooks.

Runs in an interpreter that need not have TensorFlow (`setting.torch_python`). Computing is timed before the run, with
all ranks at it and nothing sent; what a step takes beyond it counts as exchanging, waiting included.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from slimdp_tf.bench.setting import Program, Setting
from slimdp_tf.bench.task import Task

_FIND = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"
_MODULE = "slimdp_tf.bench.contenders.torch_ddp"
_PROBE_STEPS = 16


def launch_plain(setting: Setting) -> list[Program]:
    """All-reduce of f32 gradients in every step."""
    return _launch(setting, "plain")


def launch_fp16(setting: Setting) -> list[Program]:
    """All-reduce of gradients rounded to 16 bits."""
    return _launch(setting, "fp16")


def launch_powersgd(setting: Setting, *, rank: int = 2, start: int = 10) -> list[Program]:
    """PowerSGD of a rank, with error feedback; exact for the first `start` steps."""
    _check_counts(rank=rank, start=start)
    return _launch(setting, "powersgd", rank=rank, start=max(2, start))


def launch_localsgd(setting: Setting, *, period: int = 16, start: int = 48) -> list[Program]:
    """Post-local SGD: exact for `start` steps, then models are averaged every `period` steps."""
    _check_counts(period=period, start=start)
    return _launch(setting, "localsgd", period=period, start=start)


def _check_counts(**counts: int) -> None:
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError(f"{name} must be an integer of at least 1. Received: {count!r}.")


def _launch(setting: Setting, variant: str, **options: int) -> list[Program]:
    if not has_torch(setting.torch_python):
        raise ImportError(
            "This contender needs PyTorch: pip install 'slimdp_tf[torch]', or name an interpreter that has it, "
            f"--torch_python=PATH. Received: {setting.torch_python}, which has none."
        )
    host, _, port = setting.addresses.get("worker0", "worker0:2222").rpartition(":")
    command = setting.run_alone(_MODULE, variant, json.dumps(options), python=setting.torch_python)
    shared = {"WORLD_SIZE": str(setting.workers), "MASTER_ADDR": host, "MASTER_PORT": port}
    shared["GLOO_SOCKET_IFNAME"] = "lo" if host.startswith("127.") else "eth0"
    return [
        Program(name, command, {**shared, "RANK": str(rank)}, is_reporting=rank == 0)
        for rank, name in enumerate(setting.worker_hosts)
    ]


@functools.cache
def has_torch(python: str) -> bool:
    """Whether an interpreter has PyTorch; it is not imported."""
    try:
        return not subprocess.run([python, "-c", _FIND], timeout=60).returncode
    except OSError as error:
        raise FileNotFoundError(
            f"--torch_python must be a Python interpreter. Received: {python!r} ({error})."
        ) from error


def main(arguments: list[str]) -> None:
    """Trains as one rank; rank 0 reports."""
    import torch
    from torch import distributed

    task, rank, options = Task.from_environment(), int(os.environ["RANK"]), json.loads(arguments[1])
    if task.every % options.get("period", 1):
        sys.exit(f"period must divide the {task.every} steps between evaluations. Received: {options['period']}.")
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    model = make_model(task)
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    sgd = torch.optim.SGD(model.parameters(), lr=task.learning_rate)
    optimizer = compress(parallel, sgd, arguments[0], **options)
    compute_s = time_computing(parallel, task.batches(rank))
    batches = task.batches(rank)
    distributed.barrier()
    if rank == 0:
        task.begin(version=f"torch {torch.__version__}", compute_s_per_step=compute_s)
    steps, seconds, is_going = 0, 0.0, torch.ones(1)
    while is_going.item():
        begin = time.perf_counter()
        for _ in range(task.every):
            learn(parallel, *next(batches))
            optimizer.step()
        steps, seconds = steps + task.every, seconds + time.perf_counter() - begin
        if rank == 0:
            split = {"compute_s": compute_s * steps, "exchange_s": max(0.0, seconds - compute_s * steps)}
            is_going[0] = task.pause(steps, lambda: list_weights(model), **split)
        distributed.broadcast(is_going, 0)
    distributed.barrier()
    distributed.destroy_process_group()


def learn(parallel: Any, images: np.ndarray, labels: np.ndarray) -> None:
    """Computes the gradient of one batch; the hook exchanges it."""
    import torch

    parallel.zero_grad()
    torch.nn.functional.cross_entropy(parallel(torch.from_numpy(images)), torch.from_numpy(labels)).backward()


def time_computing(parallel: Any, batches: Iterator[tuple[np.ndarray, np.ndarray]]) -> float:
    """Returns the seconds that a step computes, with all ranks at it and nothing sent: the median of some."""
    seconds = []
    with parallel.no_sync():
        learn(parallel, *next(batches))
        for images, labels in itertools.islice(batches, _PROBE_STEPS):
            begin = time.perf_counter()
            learn(parallel, images, labels)
            seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def make_model(task: Task) -> Any:
    """Returns the MLP of the work, with its initial weights."""
    import torch

    kernels, biases = task.initial_weights()[::2], task.initial_weights()[1::2]
    layers: list[torch.nn.Module] = []
    for kernel, bias in zip(kernels, biases):
        layer = torch.nn.Linear(*kernel.shape)
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(kernel.T.copy()))
            layer.bias.copy_(torch.from_numpy(bias))
        layers += [layer, torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def list_weights(model: Any) -> list:
    """Returns the weights in the order and shapes of the work: kernels stand the other way round in PyTorch."""
    return [parameter.detach().numpy().T for parameter in model.parameters()]


def compress(parallel: Any, sgd: Any, variant: str, **options: int) -> Any:
    """Registers the variant's hook, and returns the optimizer to step with."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, post_localSGD_hook, powerSGD_hook
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer

    if variant == "fp16":
        parallel.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif variant == "powersgd":
        state = powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=options["rank"], start_powerSGD_iter=options["start"]
        )
        parallel.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    elif variant == "localsgd":
        start = options["start"] - 1  # PyTorch counts from 0; averages then fall on start, start + period, ...
        state = post_localSGD_hook.PostLocalSGDState(None, None, start, post_local_gradient_allreduce=False)
        parallel.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
        return PostLocalSGDOptimizer(sgd, PeriodicModelAverager(options["period"], warmup_steps=start))
    return sgd


if __name__ == "__main__":
    main(sys.argv[1:])
