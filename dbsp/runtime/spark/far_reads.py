"""Lease views on workers of other hosts, and read them in small jobs while steps run.

A lease is granted in a control job between two steps, and ended in a job whose result is ignored. Pages are jobs of a
separate fair pool, one at a time. Steps go on meanwhile, and wait for a core at most as long as a page takes.

Only this module knows the set of leases. Every grant and every end tells the workers all leases that are held. So a lease
whose end was lost ends with the next message, and no late message ends a newer lease (`dbsp.store.LeaseNames`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from dbsp.layout import Layout
from dbsp.runtime import far_views
from dbsp.runtime.far_views import FarPage, FarViews, PageAsk, PageOrder
from dbsp.runtime.leases import OldViews
from dbsp.runtime.spark.diagnosis import no_executor
from dbsp.runtime.spark.jobs import JobThread
from dbsp.runtime.spark.placement import live_hosts
from dbsp.runtime.spark.standby_job import RunsAt
from dbsp.runtime.work import Work
from dbsp.store import LeaseNames, lease_over

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.core.rdd import RDD


class FarRuntime(Protocol):
    """The part of a Spark runtime that knows the epoch and the work."""

    epoch: int
    work: Work


@dataclass(frozen=True, slots=True)
class _Lease:
    """A lease that is held: the epoch that granted it, and the workers that have it, with their hosts."""

    epoch: int
    workers: tuple[int, ...]
    hosts: tuple[str, ...]


class FarReads:
    """The leases and reads of a runtime whose workers are on other hosts; implements `dbsp.runtime.far_views.Hosts`."""

    def __init__(
        self,
        runtime: FarRuntime,
        context: SparkContext,
        control: RunsAt,
        job: Callable[..., RDD[Any]],
        make_jobs: Callable[[str], JobThread],
    ) -> None:
        """Hold no lease; the thread for jobs is made when the first page is read."""
        self._runtime, self._context = runtime, context
        self._control, self._job, self._make_jobs = control, job, make_jobs
        self._lock = threading.Lock()
        self._held: dict[int, _Lease] = {}
        self._newest, self._ending, self._closed = 0, False, False
        self._jobs: JobThread | None = None

    @property
    def epoch(self) -> int:
        """Return the newest epoch that opened the workers."""
        return self._runtime.epoch

    def lease(self, step: int, layout: Layout, old: OldViews) -> FarViews:
        """Return a lease on all views before `step`, between two steps, in one job.

        **Errors** `UnavailableError` if a host has no executor now: steps, and not reads, wait for it.
        """
        epoch = self.epoch
        self._check_hosts(layout.workers, layout.hosts)
        with self._lock:
            self._newest += 1
            name = self._newest
            self._held[name] = _Lease(epoch, layout.workers, layout.hosts)
        arguments = (epoch, self._names(), step, old)
        try:
            found = self._control("lease views", layout.workers, layout.hosts, far_views.grant, arguments)
        except BaseException:
            with self._lock:
                del self._held[name]
            raise
        return FarViews(self._runtime.work.plan, step, (name, epoch), found, self, old)

    def pages(self, order: PageOrder, asks: Mapping[int, PageAsk]) -> Mapping[int, FarPage]:
        """Return the next page of each of these workers, in one job."""
        with self._lock:
            lease = self._held.get(order.name)
        if lease is None:
            raise lease_over("the lease has ended")
        homes = dict(zip(lease.workers, lease.hosts, strict=True))
        hosts = tuple(homes[worker] for worker in asks)
        return self.run(f"read {order.view}", tuple(asks), hosts, far_views.page, order, dict(asks))

    def run(
        self,
        what: str,
        workers: tuple[int, ...],
        hosts: tuple[str, ...],
        function: Callable[..., Any],
        *arguments: Any,
    ) -> Mapping[int, Any]:
        """Run one short function for each worker on its host; see `dbsp.runtime.version_copies.RunsBesideSteps`."""
        self._check_hosts(workers, hosts)
        return self._control(what, workers, hosts, function, arguments, self._thread())

    def end(self, name: int) -> None:
        """End a lease in a job whose result is ignored; if the job fails, the next grant or end also ends this lease."""
        with self._lock:
            lease = self._held.pop(name, None)
            if lease is None or lease.epoch != self.epoch or self._ending or self._closed:
                return
            self._ending = True
        self._thread().post(lambda: self._end(lease))

    def _end(self, lease: _Lease) -> None:
        """Tell the workers which leases are held; runs on the thread for jobs."""
        with self._lock:
            self._ending = False
        arguments = (lease.epoch, self._names())
        self._job(lease.workers, lease.hosts, far_views.end, arguments).collect()

    def _check_hosts(self, workers: Sequence[int], hosts: Sequence[str]) -> None:
        """Refuse a job for a host without an executor, which Spark would run on another host."""
        if any(hosts) and (error := no_executor(workers, hosts, live_hosts(self._context))) is not None:
            raise error

    def _names(self) -> LeaseNames:
        """Return the leases that are held now."""
        with self._lock:
            return LeaseNames(live=frozenset(self._held), newest=self._newest)

    def _thread(self) -> JobThread:
        """Return the thread for jobs."""
        with self._lock:
            if self._jobs is None:
                self._jobs = self._make_jobs("reads")
            return self._jobs

    def cancel(self) -> None:
        """Cancel a page that is being read; its reader gets an `UnavailableError`."""
        if self._jobs is not None:
            self._jobs.cancel()

    def close(self) -> None:
        """End the thread for jobs."""
        with self._lock:
            self._closed = True
        if self._jobs is not None:
            self._jobs.close()
