"""Explain why a job failed or does not end: silent workers, unreachable hosts, hosts with another version of dbsp.

Spark reports what happened to a task, not why. A host that is powered off shows as a task on another host, or as silence. So
this module connects to the executors' addresses and reads the states of tasks, after a failure only. A successful job pays
nothing.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from pyspark import SparkContext, cloudpickle

from dbsp.errors import DbspError, EngineError, InternalError, UnavailableError
from dbsp.runtime.spark import probe
from dbsp.runtime.spark.placement import ground_rdd, live_hosts, running
from dbsp.version import VERSION

CONNECT_S = 1.0
REGISTERED_S = 30.0
"""How long executors may take to register after Spark has started: as long as Spark itself waits for them by default."""
TRIED_AT_ONCE = 16
_TASKS_MAX = 100_000


def unfinished(context: SparkContext, group: str, count: int) -> tuple[int, ...]:
    """Return the partitions below `count` without a finished task in the group's running stage; empty if no stage runs."""
    if context._jsc is None:
        return ()
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(group)]
    own = {int(number) for job in jobs if job is not None for number in job.stageIds}
    active = [number for number in tracker.getActiveStageIds() if number in own]
    if not active:
        return ()
    info = tracker.getStageInfo(max(active))
    store: Any = running(context).statusStore()
    tasks = store.taskList(max(active), info.currentAttemptId if info is not None else 0, _TASKS_MAX)
    found = [tasks.apply(at) for at in range(tasks.size())]
    done = {int(task.index()) for task in found if str(task.status()) == "SUCCESS"}
    return tuple(index for index in range(count) if index not in done)


def hosts_away(context: SparkContext, hosts: Iterable[str]) -> tuple[str, ...]:
    """Return the named hosts on which no executor answers: Spark has none there, or a connection to its address fails."""
    wanted = {host for host in hosts if host}
    if not wanted:
        return ()
    status = running(context).getExecutorMemoryStatus()
    addresses = [each for each in str(status.keySet().mkString(" ")).split() if each.rpartition(":")[0] in wanted]
    alive = live_hosts(context) - unreachable(addresses)
    return tuple(sorted(wanted - alive))


def unreachable(addresses: Iterable[str]) -> set[str]:
    """Return the hosts of "host:port" addresses of which none accepts a connection within `CONNECT_S` seconds."""

    def answers(address: str) -> bool:
        host, _, port = address.rpartition(":")
        with suppress(OSError), socket.create_connection((host, int(port)), CONNECT_S):
            return True
        return False

    tried = sorted(set(addresses))
    with ThreadPoolExecutor(TRIED_AT_ONCE, thread_name_prefix="dbsp-try-hosts") as pool:
        found = list(zip(tried, pool.map(answers, tried), strict=True))
    answering = {address.rpartition(":")[0] for address, answered in found if answered}
    return {address.rpartition(":")[0] for address in tried} - answering


def versions_on(context: SparkContext, hosts: Sequence[str]) -> Mapping[str, str]:
    """Return the version of dbsp that Python workers import, by the name of the host."""
    cloudpickle.register_pickle_by_value(probe)  # type: ignore[no-untyped-call]
    return dict(ground_rdd(context, hosts).mapPartitionsWithIndex(probe.version_here).collect())


def explained(
    error: DbspError,
    what: str,
    homes: Mapping[int, str],
    away: Callable[[], Sequence[str]],
    versions: Callable[[], Mapping[str, str]],
) -> DbspError:
    """Return the error that names the cause, if a host is the cause: it does not answer, or has another version of dbsp.

    `homes` are the hosts of the job's workers. An error that no host explains is returned unchanged.
    """
    if not isinstance(error, UnavailableError | InternalError):
        return error
    if gone := tuple(away()):
        return host_gone(what, homes, gone, error.message)
    if isinstance(error, InternalError):
        other = {host: version for host, version in versions().items() if version != VERSION}
        if other:
            return other_version(other)
    return error


def host_gone(what: str, homes: Mapping[int, str], gone: Sequence[str], reason: str) -> UnavailableError:
    """Return the error that names the hosts which do not answer, with their workers."""
    workers = sorted(worker for worker, host in homes.items() if host in gone)
    return UnavailableError(
        f"a host of workers does not answer: hosts={', '.join(gone)} workers={workers} while={what} reason={reason}",
        "start it, and Spark's worker on it, again: the pipeline goes on from its state there",
    )


def other_version(found: Mapping[str, str]) -> EngineError:
    """Return the error that names the hosts with another version of dbsp than the coordinator's."""
    story = ", ".join(f"{host} has {version}" for host, version in sorted(found.items()))
    return EngineError(
        f"hosts have another version of dbsp than the coordinator: {story}; coordinator={VERSION}",
        "install one version on all hosts; over a running service: `coordinator upgrade`",
    )


def no_executor(workers: Sequence[int], hosts: Sequence[str], alive: Collection[str]) -> UnavailableError | None:
    """Return the error that the host of a worker has no executor; None if each has one."""
    for worker, host in zip(workers, hosts, strict=True):
        if host and host not in alive:
            return UnavailableError(
                f"no Spark executor on the host of a worker: worker={worker} host={host} hosts={sorted(alive)}",
                "start a Spark worker there; its name in [layout] hosts must be the one that Spark uses",
            )
    return None
