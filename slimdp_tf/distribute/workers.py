"""Calls to the workers: one thread each, one call at a time, every wait bounded and named."""

from __future__ import annotations

import collections
import contextlib
import functools
import inspect
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterable

import tensorflow as tf

from slimdp_tf.distribute import _tf
from slimdp_tf.distribute.calls import GONE, WATCH_S, Call, CallThread, ClusterError, brief
from slimdp_tf.distribute.causes import is_blamed, lacks_all
from slimdp_tf.distribute.local_variable import standing_on
from slimdp_tf.distribute.probes import BUSY_S, are_there
from slimdp_tf.distribute.spec import answers

_MOST_BREAKS, _BREAKS_S = 10, 60.0  # so many within so many seconds are no accident


class Workers:
    """The live workers of a cluster and a thread for each.

    Args:
        devices: a device per worker.
        names: what errors call each worker, with its address.
        deadline_s: seconds after which a worker that does not answer counts as lost.
        cluster_deadline_s: seconds to wait for at least one live worker.

    Attributes:
        missed: how often a call ended without a worker because it was late, since this was set to 0.
        are_servers_there: whether every server answers, as the process that it was; asked when a connection was lost.
    """

    def __init__(self, devices: list[str], names: list[str], deadline_s: float, cluster_deadline_s: float):
        self.devices, self.names = devices, names
        self.deadline_s, self.cluster_deadline_s = deadline_s, cluster_deadline_s
        self.live: set[int] = set(range(len(devices)))
        self.is_closed, self.missed = False, 0
        self.are_servers_there: Callable[[], bool] = lambda: False
        self._breaks = [collections.deque(maxlen=_MOST_BREAKS) for _ in devices]  # when connections broke
        self._furnishings: list[Callable[[], Callable[[int], None] | None]] = []
        self._returned: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._lost_errors: dict[int, BaseException] = {}
        self._threads = [self._start(worker) for worker in range(len(devices))]

    def __len__(self) -> int:
        return len(self.devices)

    def _start(self, worker: int) -> CallThread:
        executor, device = _tf.new_executor(), self.devices[worker]

        @contextlib.contextmanager
        def on_worker():
            with standing_on(worker), _tf.talking(executor), tf.device(device):
                yield

        return CallThread(f"slimdp worker {worker}", on_worker)

    def furnish(self, make: Callable[[int], None]) -> None:
        """Runs `make(worker)` for every worker, now and again each time a worker comes back empty.

        Args:
            make: puts what the worker needs (variables, data) on the device it is called under. A method counts for as
                long as its object lives: data that nobody uses any more goes, here and on the workers.
        """
        self._furnishings.append(weakref.WeakMethod(make) if inspect.ismethod(make) else lambda: make)
        self.call(make)

    def forget(self, make: Callable[[int], None]) -> None:
        """Takes back a `furnish`."""
        self._furnishings = [held for held in self._furnishings if held() not in (None, make)]

    def furnish_again(self) -> None:
        """Gives every live worker anew what it was furnished with, as if it had just come."""
        for make in [held() for held in self._furnishings]:
            if make is not None:
                self.call(make)

    def call(
        self,
        function: Callable[[int], object],
        workers: Iterable[int] | None = None,
        watch: Callable[[], float] = lambda: 0.0,
        late: Callable[[object], None] = lambda result: None,
    ) -> dict[int, object]:
        """Runs `function(worker)` once for each live worker, at the same time, and waits for all.

        Args:
            function: what to do.
            workers: for which workers only.
            watch: called every `WATCH_S` of the wait; it may end it by an error, or say for how many seconds a server
                has been silent: then nobody counts as late who may be waiting for it (see `Servers.watch`).
            late: called with the result of a worker that had been given up by then, in that worker's thread.

        Returns:
            The results of those that answered. A worker that failed or did not answer in time leaves `live`.

        Raises:
            Whatever `function` raised, unless it says that the worker is gone.
            ClusterError: no worker is left, or the cluster has been stopped.
        """
        if self.is_closed:
            raise ClusterError("The cluster of this strategy has been stopped: there are no workers to call.")
        targets = sorted(self.live if workers is None else self.live & set(workers))
        given_up: set[int] = set()

        def serve(worker: int) -> object:
            result = function(worker)
            if worker in given_up:
                late(result)
            return result

        calls = {worker: self.submit(serve, worker) for worker in targets}
        give_up, results = time.monotonic() + self.deadline_s, {}
        for worker, call in calls.items():
            while not call.ends_within(min(WATCH_S, give_up - time.monotonic())):
                if silence := watch():
                    give_up = time.monotonic() + self.deadline_s + silence
                elif time.monotonic() >= give_up:
                    break
            if not call.ends_within(0.0):
                given_up.add(worker)
                self.lose(worker)
                self.missed += 1
            elif call.error is None:
                results[worker] = call.result
            else:
                self.judge(worker, call.error)
        if targets and not self.live:
            self.wait_for_any()
        return results

    def submit(self, function: Callable[[int], object], worker: int) -> Call:
        """Queues `function(worker)` for one worker."""
        return self._threads[worker].submit(functools.partial(function, worker))

    def judge(self, worker: int, error: BaseException) -> None:
        """A worker that failed with `error` leaves `live`, or the error is raised if it is not about connections.

        It is raised, too, if it is about the connection to a server that is not there any more.
        """
        if not self.is_gone(worker, error) and not self._has_lost_connection(worker, error):
            raise error
        self.lose(worker, error)

    def _has_lost_connection(self, worker: int, error: BaseException) -> bool:
        """Whether only a connection broke to a server that is there; not so if it does again and again."""
        if not isinstance(error, GONE) or not self.are_servers_there():
            return False
        breaks = self._breaks[worker]
        breaks.append(time.monotonic())
        return len(breaks) < _MOST_BREAKS or breaks[-1] - breaks[0] > _BREAKS_S

    def is_gone(self, worker: int, error: BaseException) -> bool:
        """Whether a worker that failed with `error` does not answer, or lacks all that it held."""
        device = self.devices[worker]
        is_away = isinstance(error, GONE) and (is_blamed(device, error) or not are_there([device], BUSY_S)[0])
        return is_away or lacks_all(error)

    def has_returned(self) -> bool:
        """Whether a worker that was lost answers again and waits to be taken."""
        return not self._returned.empty()

    def take_returned(self) -> list[int]:
        """Workers that answer again: they are furnished and live when this returns."""
        returned = []
        while not self._returned.empty():
            worker = self._returned.get()
            self.live.add(worker)
            for make in [held() for held in self._furnishings]:
                if make is not None:
                    self.call(make, [worker])
            if worker in self.live:
                returned.append(worker)
        return returned

    def lose(self, worker: int, error: BaseException | None = None) -> None:
        """A worker leaves `live`, by an error or because it did not answer in time; it is awaited in the background."""
        if worker not in self.live:
            return  # and awaited already
        error = error or TimeoutError(f"no answer within {self.deadline_s:g} s")
        self.live.discard(worker)
        self._lost_errors[worker] = error
        tf.get_logger().warning("%s is lost (%s); training goes on without it.", self.names[worker], brief(error))
        threading.Thread(target=self._await, args=(worker,), daemon=True, name=f"slimdp awaits {worker}").start()

    def _await(self, worker: int) -> None:
        """Waits until a worker answers, as the process that was lost (it hung) or as a new one."""
        device, addresses, is_back = self.devices[worker], [_tf.address_of(d) for d in self.devices], False
        while not is_back:
            time.sleep(0.5)
            if self.is_closed or _tf.address_of(device) != addresses[worker]:
                return  # the cluster has been stopped
            try:
                if answers(addresses[worker]):
                    is_back = _tf.is_alive(device)  # waits for a worker that hangs
                    if not is_back:
                        self._connect_again(addresses)
            except tf.errors.OpError:
                continue
        tf.get_logger().warning("%s is back.", self.names[worker])
        self._threads[worker].end()  # after what may still hang in it
        self._threads[worker] = self._start(worker)
        self._returned.put(worker)

    def _connect_again(self, addresses: list[str]) -> None:
        """Connects again to the workers that were lost, unless another task is silent: that would be waited for."""
        lost = {address for worker, address in enumerate(addresses) if worker not in self.live}
        missing = frozenset(address for address in _tf.addresses() if not answers(address))
        if missing <= lost:
            _tf.update_cluster(missing)

    def wait_for_any(self) -> None:
        """Waits until a worker that was lost answers again.

        Raises:
            ClusterError: none does in time.
        """
        give_up = time.monotonic() + self.cluster_deadline_s
        while self._returned.empty():
            if time.monotonic() > give_up:
                lost = "; ".join(f"{self.names[w]}: {brief(e)}" for w, e in sorted(self._lost_errors.items()))
                raise ClusterError(
                    f"No worker answers, and none came back within {self.cluster_deadline_s:g} s. {lost}"
                )
            time.sleep(0.1)


def worker_devices(workers: int) -> list[str]:
    """The device each worker trains on: its first GPU, else its CPU."""
    devices = [tf.DeviceSpec.from_string(d.name) for d in tf.config.list_logical_devices("GPU")]
    gpus = [sorted(d.device_index for d in devices if d.job == "worker" and d.task == w) for w in range(workers)]
    for worker, found in enumerate(gpus):
        if len(found) > 1:
            message = "worker %d has %d GPUs and uses the first: one replica per worker."
            tf.get_logger().warning(message, worker, len(found))
    return [f"/job:worker/replica:0/task:{w}/device:{f'GPU:{g[0]}' if g else 'CPU:0'}" for w, g in enumerate(gpus)]
