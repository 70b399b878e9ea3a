"""Choose the rows that the next step reads, and compute the input positions after the steps so far.

A step reads everything that waits, up to a number of rows and of bytes (docs/concepts/steps.md). Of a transaction it
reads all rows or none (design record 0030). The module is pure arithmetic on offsets; the event loop decides when to
read. Invariant 7: consecutive ranges have neither gap nor overlap.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from dbsp.coordinator.decisions.limits import StepLimits
from dbsp.errors import DataError
from dbsp.logs import Range, StepRecord
from dbsp.logs.sizes import Sizes

Place = tuple[str, int]
Positions = Mapping[Place, int]

NOWHERE: Positions = MappingProxyType({})
_NOTHING = Sizes.of(0, ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The rows that no step has read yet.

    `waiting` counts them per place (table and partition), and `sizes` gives their bytes. `rows` and `size_bytes` are
    the totals. `full` is True if they reach a limit of a step.
    """

    waiting: Mapping[Place, int]
    sizes: Mapping[Place, Sizes]
    rows: int
    size_bytes: int
    full: bool


def backlog(ends: Positions, done: Positions, sizes: Mapping[Place, Sizes], limits: StepLimits) -> Backlog:
    """Return the rows between the positions and the ends; rows of a place without sizes count as 0 bytes.

    **Errors** `DataError` if an input ends below the position that steps have read: rows of it were lost.
    """
    waiting: dict[Place, int] = {}
    for place, end in ends.items():
        rows = end - done.get(place, 0)
        if rows < 0:
            table, partition = place
            raise DataError(
                f"the input ends below what was processed: table={table} partition={partition} end={end}"
                f" processed={done.get(place, 0)}",
                "the input log was replaced or truncated: restore it, or start over with an empty data_dir",
            )
        if rows:
            waiting[place] = rows
    return _weighed(waiting, done, sizes, limits)


def _weighed(
    waiting: Mapping[Place, int], done: Positions, sizes: Mapping[Place, Sizes], limits: StepLimits
) -> Backlog:
    known = {place: sizes.get(place, _NOTHING) for place in waiting}
    rows = sum(waiting.values())
    size = sum(known[place].between(at := done.get(place, 0), at + count) for place, count in waiting.items())
    full = rows >= limits.max_rows_per_step or size >= limits.max_step_bytes
    return Backlog(waiting=waiting, sizes=known, rows=rows, size_bytes=size, full=full)


def unread(ends: Positions, done: Positions) -> tuple[Range, ...]:
    """Return the non-empty ranges between the positions and the ends, ordered by table and partition."""
    return tuple(
        Range(table=table, partition=partition, first=done.get((table, partition), 0), last=end)
        for (table, partition), end in sorted(ends.items())
        if end > done.get((table, partition), 0)
    )


def cut(found: Backlog, done: Positions, limits: StepLimits) -> tuple[Range, ...]:
    """Return the ranges of one step: all rows that wait, or an equal share of every place if that is too much.

    **Law** contiguous with `done`; at most `max_rows_per_step` rows; at most `max_step_bytes` bytes by the sizes. If
    the first rows of all places already exceed the bytes, the step takes these rows alone. Every place gives at least
    one row, unless more places wait than the step may take rows. Not empty unless nothing waits; places are ordered by
    table and partition.

    **Example**

    >>> limits = StepLimits(max_rows_per_step=10)
    >>> found = backlog({("t", 0): 30, ("u", 0): 12}, {("t", 0): 5}, {}, limits)
    >>> [(r.table, r.first, r.last) for r in cut(found, {("t", 0): 5}, limits)]
    [('t', 5, 12), ('u', 0, 3)]
    """
    if not found.rows:
        return ()
    share = min(1.0, limits.max_rows_per_step / found.rows)
    within = _within(found, done, limits.max_step_bytes)
    left = limits.max_rows_per_step
    ranges: list[Range] = []
    behind = len(found.waiting)
    for (table, partition), waiting in sorted(found.waiting.items()):
        behind -= 1  # leave a row for each later place, since the shares before it are rounded up
        taken = min(within[table, partition], left, max(1, left - behind), math.ceil(waiting * share))
        if taken:
            first = done.get((table, partition), 0)
            ranges.append(Range(table=table, partition=partition, first=first, last=first + taken))
            left -= taken
    return tuple(ranges)


def _within(found: Backlog, done: Positions, size_max: int) -> dict[Place, int]:
    """Return the rows that each place may give within `size_max` bytes: one row, and an equal share of the others."""
    if found.size_bytes <= size_max:
        return dict(found.waiting)
    firsts = {place: found.sizes[place].between(at := done.get(place, 0), at + 1) for place in found.waiting}
    needed = sum(firsts.values())
    room, rest = max(0, size_max - needed), found.size_bytes - needed
    rows: dict[Place, int] = {}
    for place, waiting in found.waiting.items():
        at, sizes = done.get(place, 0), found.sizes[place]
        more = (sizes.between(at, at + waiting) - firsts[place]) * room // rest if rest else 0
        last = sizes.last_within(at, firsts[place] + more)
        rows[place] = min(waiting, max(1, last - at))
    return rows


def cut_whole(
    found: Backlog, done: Positions, limits: StepLimits, transactions: Sequence[Sequence[Range]], step: int
) -> tuple[Range, ...]:
    """Return the ranges of a step that cannot take all waiting rows; of each transaction it takes all rows or none.

    Steps with an even number take the oldest transaction first, and so do steps that would otherwise be empty. The
    other steps take an equal share of every place. So neither kind of row starves the other.

    **Shape** `transactions` is ordered from the oldest; finished transactions and tables that are not read do not
    matter.
    **Law** contiguous with `done`, not empty; it exceeds the limits only for a single transaction and nothing else.
    Take a transaction with k - 1 older ones, and n rows before it and them in their places. Whatever arrives meanwhile,
    one of the next 2 (2k + n / limit) steps takes the transaction. Any other row is taken within a bounded number of
    steps, if a step may take a row of every place.
    **Cost** a Python loop over all transactions that wait.
    """
    kept = keep_whole(cut(found, done, limits), found, done, transactions)
    if kept and step % 2:
        return kept
    return keep_whole(oldest_first(found, done, limits, transactions), found, done, transactions)


def oldest_first(
    found: Backlog, done: Positions, limits: StepLimits, transactions: Iterable[Sequence[Range]]
) -> tuple[Range, ...]:
    """Return the ranges of a step that takes the oldest transaction, or else as many as possible of the rows before it.

    Offsets grow in the order of transactions. So the rows before the oldest transaction belong to no transaction, and
    nothing else must go with them. A transaction that exceeds the limits is taken alone, once no rows precede it.
    Remaining room is filled as by `cut`. If `cut` takes all of the transaction, or it arrived after the ends were read,
    the result is that of `cut`.

    **Example** a step of ten rows takes the four that belong together before those of `v`

    >>> limits = StepLimits(max_rows_per_step=10)
    >>> found = backlog({("t", 0): 2, ("u", 0): 2, ("v", 0): 96}, {}, {}, limits)
    >>> pair = [Range(table="t", partition=0, first=0, last=2), Range(table="u", partition=0, first=0, last=2)]
    >>> [(r.table, r.first, r.last) for r in oldest_first(found, {}, limits, [pair])]
    [('t', 0, 2), ('u', 0, 2), ('v', 0, 6)]
    """
    ranges = cut(found, done, limits)
    parts = next(filter(None, (_waiting(each, found, done) for each in transactions)), [])
    whole = _below({(each.table, each.partition): each.last for each in parts}, found, done, limits)
    if _has(ranges, parts) or any(rows > found.waiting[place] for place, rows in whole.waiting.items()):
        return ranges
    taken = cut(whole, done, limits)
    if not _has(taken, parts):
        before = _below({(each.table, each.partition): each.first for each in parts}, found, done, limits)
        if not before.rows:
            return unread({place: done.get(place, 0) + rows for place, rows in whole.waiting.items()}, done)
        taken = cut(before, done, limits)
    return _filled(taken, found, done, limits)


def _filled(taken: Sequence[Range], found: Backlog, done: Positions, limits: StepLimits) -> tuple[Range, ...]:
    """Return the `taken` ranges, extended by later rows as far as the limits of the step allow."""
    ends = _ends(taken)
    held = _below(ends, found, done, limits)
    rows, size = limits.max_rows_per_step - held.rows, limits.max_step_bytes - held.size_bytes
    if rows < 1 or size < 1:
        return tuple(taken)
    after = {**done, **ends}
    rest = _below({place: done.get(place, 0) + rows for place, rows in found.waiting.items()}, found, after, limits)
    more = cut(rest, after, replace(limits, max_rows_per_step=rows, max_step_bytes=size))
    if _below(_ends(more), found, after, limits).size_bytes > size:
        return tuple(taken)  # the first row of every place does not fit
    return unread({**ends, **_ends(more)}, done)


def keep_whole(
    ranges: Iterable[Range], found: Backlog, done: Positions, transactions: Iterable[Sequence[Range]]
) -> tuple[Range, ...]:
    """Shorten the ranges of a step so that they contain all waiting rows of a transaction, or none.

    `transactions` is ordered from the oldest. The ranges end before the first transaction that they contain in part.

    **Law** the result is contiguous with `done`. Excluding a transaction removes no row of an earlier one, because
    offsets grow in the order of transactions.

    **Example** rows 2 of `t` and 0 of `u` belong together

    >>> waiting = backlog({("t", 0): 5, ("u", 0): 9}, {}, {}, StepLimits())
    >>> half = [Range(table="t", partition=0, first=0, last=2), Range(table="u", partition=0, first=0, last=4)]
    >>> pair = [Range(table="t", partition=0, first=2, last=3), Range(table="u", partition=0, first=0, last=1)]
    >>> [(r.table, r.first, r.last) for r in keep_whole(half, waiting, {}, [pair])]
    [('t', 0, 2)]
    """
    last = _ends(ranges)
    for transaction in transactions:
        parts = _waiting(transaction, found, done)
        if any(each.last > last.get((each.table, each.partition), 0) for each in parts):
            for each in parts:
                place = each.table, each.partition
                last[place] = min(last.get(place, 0), each.first)
    return unread(last, done)


def _waiting(transaction: Sequence[Range], found: Backlog, done: Positions) -> list[Range]:
    """Return the ranges of a transaction that no step has read yet; places outside the backlog do not count."""
    places = [(each, (each.table, each.partition)) for each in transaction]
    return [each for each, place in places if place in found.waiting and each.last > done.get(place, 0)]


def _below(ends: Positions, found: Backlog, done: Positions, limits: StepLimits) -> Backlog:
    """Return the backlog if every place ended at these ends."""
    rows = {place: end - done.get(place, 0) for place, end in ends.items()}
    return _weighed({place: count for place, count in rows.items() if count > 0}, done, found.sizes, limits)


def _has(ranges: Iterable[Range], parts: Iterable[Range]) -> bool:
    last = _ends(ranges)
    return all(each.last <= last.get((each.table, each.partition), 0) for each in parts)


def _ends(ranges: Iterable[Range]) -> dict[Place, int]:
    return {(each.table, each.partition): each.last for each in ranges}


def begin(done: Positions, records: Iterable[StepRecord], floors: Positions) -> dict[Place, int]:
    """Return the positions, completed by a first position for every place that no step before `records` has read.

    **Law** a known position stays as it is: if rows after it were lost, reading them fails. Any other place begins with
    its first range in `records`, or else at the present beginning of its log.

    **Example** the head of a Kafka topic was deleted before the pipeline first read it

    >>> begin({("t", 0): 5}, [], {("t", 0): 7, ("t", 1): 9, ("t", 2): 0})
    {('t', 0): 5, ('t', 1): 9}
    """
    found = {place: floor for place, floor in floors.items() if floor}
    read: dict[Place, int] = {}
    for record in records:
        for range_ in record.ranges:
            read.setdefault((range_.table, range_.partition), range_.first)
    return {**found, **read, **done}


def advance(done: Positions, records: Iterable[StepRecord]) -> dict[Place, int]:
    """Return the positions after these steps; raise `DataError` if a range does not begin where the one before it ended."""
    after = dict(done)
    for record in records:
        for range_ in record.ranges:
            place = (range_.table, range_.partition)
            if range_.first != after.get(place, 0):
                raise DataError(
                    f"a step record does not follow the one before: step={record.step} table={range_.table}"
                    f" partition={range_.partition} first={range_.first} expected={after.get(place, 0)}"
                )
            after[place] = range_.last
    return after
