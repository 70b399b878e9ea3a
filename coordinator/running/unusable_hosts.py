"""Find the hosts on offer that a rescale leaves out when it chooses hosts itself: lost ones, and ones with a broken disk.

A host that is silent, and not for long enough to be lost, is not left out: a rescale waits for it. Source:
docs/design/0067-hosts-left-out.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dbsp.coordinator.running.lost_hosts import SilentHosts
from dbsp.errors import UnavailableError
from dbsp.hosts import Offered
from dbsp.runtime import disks
from dbsp.runtime.runtime import KnowsHosts, RunsOnHosts, Runtime

LOST, UNWRITABLE = "it is lost", "its disk cannot be written"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusableHost:
    """A host on offer on which no worker is placed now, and the reason."""

    host: str
    reason: str


def unusable(runtime: Runtime | None, hosts: SilentHosts, offered: Offered) -> tuple[UnusableHost, ...]:
    """Return the unusable hosts of these; the thread that uses the runtime calls.

    **Errors** those of the runtime if a host falls silent meanwhile.
    """
    names = _names(offered)
    lost = lost_now(runtime, hosts, offered)
    if hosts.loss.common_disk or not isinstance(runtime, RunsOnHosts) or not names:
        return lost
    if hosts.loss.after_s is not None:
        silent = {*hosts.silent(names)}
    else:
        silent = {*runtime.silent(names)} if isinstance(runtime, KnowsHosts) else set()
    broken = disks.unwritable(runtime, [name for name in names if name not in silent])
    return (*lost, *(UnusableHost(host=host, reason=UNWRITABLE) for host in broken))


def lost_now(runtime: Runtime | None, hosts: SilentHosts, offered: Offered) -> tuple[UnusableHost, ...]:
    """Return the lost hosts of these; any thread may call."""
    names = _names(offered)
    hosts.look(runtime, names)
    return tuple(UnusableHost(host=host, reason=LOST) for host in hosts.long_silent(names))


def excluded(offered: Offered, found: Sequence[UnusableHost]) -> tuple[str, ...]:
    """Return the names of the unusable hosts; raise `UnavailableError` if no other host is on offer.

    >>> excluded((("a", 1.0), ("b", 1.0)), [UnusableHost(host="b", reason=LOST)])
    ('b',)
    """
    left_out = tuple(sorted(each.host for each in found))
    if left_out and {*_names(offered)} <= {*left_out}:
        story = "; ".join(f"{each.host}: {each.reason}" for each in found)
        raise UnavailableError(
            f"no host on offer can get workers: {story}",
            "repair a host, or name others: `coordinator rescale 2 --hosts HOST,HOST`",
        )
    return left_out


def _names(offered: Offered) -> list[str]:
    return [host for host, _ in offered if host]
