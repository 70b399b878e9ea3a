"""Find workers whose databases are gone, and hosts whose disks cannot be written.

A host may answer while its disk is lost: empty, replaced, or read-only after errors. The coordinator asks after an error alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from dbsp.disk import NO_ROOM
from dbsp.errors import UnavailableError
from dbsp.runtime.runtime import RunsOnHosts, WorkerResources


@runtime_checkable
class LooksAtDisk(Protocol):
    """Worker resources that can say whether the disk of their host is lost."""

    def has_database(self, worker: int) -> bool:
        """Return whether the worker has a database here whose file can be opened."""
        ...

    def is_writable(self) -> bool:
        """Return whether databases can be written on this disk; a full disk counts as writable."""
        ...


class HasResources(Protocol):
    """The part of `dbsp.runtime.Work` that is asked here."""

    @property
    def resources(self) -> WorkerResources:
        """Return the worker resources."""
        ...


def without_database(runtime: RunsOnHosts, workers: Sequence[int], hosts: Sequence[str]) -> tuple[int, ...]:
    """Return the workers that have no database on their hosts, or one whose file cannot be opened."""
    found = runtime.on_hosts("look for databases", workers, hosts, has_database) if workers else {}
    return tuple(worker for worker in workers if not found[worker])


def unwritable(runtime: RunsOnHosts, hosts: Sequence[str]) -> tuple[str, ...]:
    """Return the hosts on whose disks databases cannot be written; a full disk counts as writable."""
    found = runtime.on_hosts("look at disks", range(len(hosts)), hosts, is_writable) if hosts else {}
    return tuple(host for place, host in enumerate(hosts) if not found[place])


@contextmanager
def failing_disk(worker: int) -> Iterator[None]:
    """Turn a system error inside the block into an `UnavailableError`; an error for lack of space is raised unchanged."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            raise
        message = f"the disk of a worker cannot be used: worker={worker} error={error}"
        raise UnavailableError(message, "repair or replace the disk") from error


# --- tasks ----------------------------------------------------------------------------------------------------------


def has_database(work: HasResources, worker: int) -> bool:
    """Return whether the worker has a database on this host whose file can be opened."""
    return not isinstance(work.resources, LooksAtDisk) or work.resources.has_database(worker)


def is_writable(work: HasResources, _place: int) -> bool:
    """Return whether databases can be written on the disk of this host."""
    return not isinstance(work.resources, LooksAtDisk) or work.resources.is_writable()
