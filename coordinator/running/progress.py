"""The progress of a rescale, a waiting rescale and a plan as users see them: values, and their texts.

A client that only shows responses of a service imports this module without the engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

RANGES_SHOWN = 3
PARTITIONS_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingRescale:
    """A requested rescale that moves no state yet, and the reason."""

    workers: int
    strategy: str
    waits_for: str
    hosts_excluded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MovingProgress:
    """The progress of a migration: the keys that moved since this process first saw the migration, and the keys left to move.

    Keys that a replay moves again count again. `expected_s` is the remaining time at the average rate so far.
    """

    strategy: str
    workers: int
    workers_before: int
    moved_keys: int
    moved_bytes: int
    left_keys: int
    seconds: float
    expected_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RescaleProgress:
    """The progress of a warm-up.

    - `lag_bytes`: what the new owners lack of the version that round `round` copies.
    - `copied_bytes`: what they have copied in all rounds.
    - `slices_bytes`: the size of all that they own of the version.
    - `expected_s`: the remaining time of the round at its average rate so far.
    """

    workers: int
    workers_before: int
    round: int
    copied_bytes: int
    lag_bytes: int
    slices_bytes: int
    seconds: float
    expected_s: float | None


def rescale_lines(status: Mapping[str, Any]) -> list[str]:
    """Return a line for the rescale under way and a line for the waiting one, from the status of a service."""
    under_way, waiting = status["rescale"], status["rescale_waiting"]
    lines = []
    if under_way:
        progress = MovingProgress(**under_way) if "left_keys" in under_way else RescaleProgress(**under_way)
        lines.append(rescale_text(progress))
    if waiting:
        lines.append(waiting_text(WaitingRescale(**waiting)))
    return lines


def error_lines(status: Mapping[str, Any]) -> list[str]:
    """Return a line for each error and alarm in the status of a service; the error of a halt is shown with the halt.

    **Example**

    >>> past = {"over": "2024-05-31T10:00:00.000Z", "message": "a worker was away"}
    >>> error_lines({"halt": None, "last_error": None, "past_error": past, "alarms": []})
    ['past error, over since 2024-05-31T10:00:00.000Z: a worker was away']
    >>> error_lines({"halt": {"message": "a row fails"}, "last_error": None, "past_error": past, "alarms": []})
    []
    """
    lines, past = [], status["past_error"]
    if not status["halt"] and status["last_error"]:
        lines.append(f"last error: {status['last_error']}")
    elif not status["halt"] and past:
        lines.append(f"past error, over since {past['over']}: {past['message']}")
    return lines + [f"alarm since {alarm['since']}: {alarm['text']}" for alarm in status["alarms"]]


def waiting_text(waiting: WaitingRescale) -> str:
    """Describe a waiting rescale and the reason why it waits.

    **Example**

    >>> waiting_text(WaitingRescale(workers=3, strategy="icadd", waits_for="the rescale under way"))
    'to 3 workers by icadd: waits for the rescale under way'
    """
    without = f" (without {', '.join(waiting.hosts_excluded)})" if waiting.hosts_excluded else ""
    return f"to {waiting.workers} workers by {waiting.strategy}{without}: waits for {waiting.waits_for}"


def rescale_text(rescale: RescaleProgress | MovingProgress) -> str:
    """Describe the progress of a warm-up or migration, with the time that its round or all of it still takes.

    **Example**

    >>> rescale_text(RescaleProgress(workers=3, workers_before=2, round=1, copied_bytes=30_000_000, lag_bytes=10_000_000,
    ...     slices_bytes=90_000_000, seconds=3.0, expected_s=1.0))
    '2 -> 3 workers: round 1, 30 MB copied, 10 MB to go, 1 s'
    """
    known = "" if rescale.expected_s is None else f", {rescale.expected_s:,.0f} s"
    counts = f"{rescale.workers_before} -> {rescale.workers} workers"
    if isinstance(rescale, MovingProgress):
        return f"{counts}: {rescale.moved_keys:,} keys moved, {rescale.left_keys:,} to go{known}"
    return (
        f"{counts}: round {rescale.round},"
        f" {rescale.copied_bytes / 1e6:,.0f} MB copied, {rescale.lag_bytes / 1e6:,.0f} MB to go{known}"
    )


def rescale_as_text(found: Mapping[str, Any]) -> str:
    """Describe a planned or a finished rescale for people."""
    before, after = found["workers_before"], found["workers"]
    if found["done"] and not found["shards_moved"] and not found.get("partitions_moved"):
        left_out = "".join(f"\n{line}" for line in _excluded_lines(found))
        return f"there are {after} workers already: nothing was moved{left_out}"
    hosts = "".join(f"\n{line}" for line in (*_host_lines(found), *_excluded_lines(found), *_partition_lines(found)))
    moved = f"{found['shards_moved']} of {found['shards']} shards ({found['share']:.1%}; at least {found['least']:.1%} must)"
    known = found["bytes_moved"] is not None
    size = f"{found['bytes_moved']:,} of {found['bytes_total']:,} bytes" if known else "how many bytes is not known yet"
    if found["done"]:
        return f"{before} -> {after} workers: moved {moved}, {size}{hosts}"
    text = f"{before} -> {after} workers would move {moved}, {'about ' if known else ''}{size}{hosts}"
    if found["pause_seconds"] is None:
        return text
    return f"{text}\nsteps would stop for about {found['pause_seconds']:.1f} s cold, told from {found['pause_from']}"


def _host_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a rescale does to the hosts: where workers join and leave, and which hosts have none any more."""
    for what, verb in (("joining", "joins"), ("leaving", "leaves")):
        for placed in found.get(what, ()):
            if placed["host"]:
                yield f"worker {placed['worker']} {verb} on host {placed['host']}"
    if left := found.get("hosts_leaving"):
        yield f"no worker is on {', '.join(left)} {'any more' if found['done'] else 'then'}: what runs there can be stopped"


def _excluded_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the hosts on offer that get no worker, with the reason.

    >>> [*_excluded_lines({"hosts_excluded": [{"host": "b", "reason": "it is lost"}]})]
    ['host b gets no worker: it is lost']
    """
    for each in found.get("hosts_excluded", ()):
        yield f"host {each['host']} gets no worker: {each['reason']}"


def _partition_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield which input partitions get another worker; of many, how many of each table.

    >>> moved = [{"table": "orders", "partition": 3, "worker_before": 0, "worker": 2}]
    >>> [*_partition_lines({"done": False, "partitions_moved": moved})]
    ['partition 3 of orders would go from worker 0 to worker 2']
    >>> [*_partition_lines({"done": True, "partitions_moved": moved * 20})]
    ['20 partitions of orders went to other workers']
    """
    moved, verb = found.get("partitions_moved", ()), "went" if found["done"] else "would go"
    if len(moved) > PARTITIONS_SHOWN:
        for table, count in sorted(Counter(each["table"] for each in moved).items()):
            yield f"{count:,} partition{'s' if count > 1 else ''} of {table} {verb} to other workers"
        return
    for each in moved:
        workers = f"from worker {each['worker_before']} to worker {each['worker']}"
        yield f"partition {each['partition']} of {each['table']} {verb} {workers}"


def ranges_as_text(ranges: list[list[str]]) -> str:
    """Format hash ranges by their four leading hexadecimal digits.

    >>> ranges_as_text([["0000000000000000", "7fffffffffffffff"], ["c000000000000000", "ffffffffffffffff"]])
    '0000-7fff c000-ffff'
    """
    shown = " ".join(f"{low[:4]}-{high[:4]}" for low, high in ranges[:RANGES_SHOWN])
    more = len(ranges) - RANGES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def upgrade_as_text(found: dict[str, Any]) -> str:
    """Describe a finished upgrade for people."""
    if found["before"] == found["to"]:
        return f"dbsp {found['to']} is installed and runs: there is nothing to upgrade"
    return (
        f"upgraded from dbsp {found['before']} to {found['to']} before step {found['step']};"
        f" no step could run for {found['pause_seconds']:.2f} s\n{_proof_as_text(found)}"
    )


def _proof_as_text(found: dict[str, Any]) -> str:
    """Describe which steps the other version computed again before the upgrade."""
    proof = found.get("proof")
    if proof is None:
        return f"not proved: dbsp {found['to']} cannot run finished steps again"
    left_out = f" ({proof['left_out']})" if proof["left_out"] else ""
    if not proof["rows"]:
        return f"not proved{left_out}"
    first, last = proof["first"], proof["last"] - 1
    steps = f"step {first}" if first == last else f"steps {first} to {last}"
    copied = proof.get("copied_bytes", 0)
    over = f", over {copied:,} bytes copied from other hosts" if copied else ""
    return f"proved: {steps} ({proof['rows']:,} rows) gave the same outputs again in {proof['seconds']:.2f} s{over}{left_out}"
