"""The interface of a distributor, and what both strategies are made of: marks of taken state, stored rows, dealt rows.

A distributor stands between upstream and the stateful operators of one region on one worker. It decides where each row goes
while the layout changes from F to F', and when which state moves. It is a value: `handle` gives the next one and what is to
be done. It has no clock, does no I/O and knows no other worker but by messages.

Invariant 2: a row passes downstream only where the state of its key is. A row that cannot be there yet is stored, a row that
is elsewhere is sent on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

import numpy as np

from dbsp.distribute.keys import NO_KEYS, NO_ROWS, Keys, Mask, Numbers
from dbsp.distribute.messages import Event, Out, Pass, Rows, Send
from dbsp.layout import Layout

HERE, STORE = -1, -2
"""Where a row goes, if not to a worker: downstream here, or into store."""


class Distributor(Protocol):
    """One worker's part of a migration, in one region."""

    @property
    def worker(self) -> int:
        """Whose part it is."""
        ...

    @property
    def migrating(self) -> bool:
        """Whether a migration has begun here and not ended."""
        ...

    @property
    def layout(self) -> Layout:
        """The layout that holds once nothing moves any more."""
        ...

    @property
    def at_rest(self) -> bool:
        """Whether no row is stored and no key on hold, as at the end of every step."""
        ...

    @property
    def left(self) -> int:
        """How many keys this worker has yet to give away, as far as it knows them."""
        ...

    def handle(self, event: Event) -> tuple[Self, list[Out]]:
        """The distributor after the event, and what is to be done, in order."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Which states were taken in the migration to `version`: per giver, the highest key hash.

    Givers give their keys away in hash order and the first copy of each comes in that order, so one number per giver says
    which copies are repeats. **State** one number per worker, however many keys move.
    """

    version: int = -1
    highest: Mapping[int, int] = field(default_factory=dict)

    def new(self, version: int, owner: int, keys: Keys) -> tuple[Marks, Mask]:
        """Which of these keys come for the first time, and the marks with them."""
        if version < self.version or not len(keys):
            return self, np.zeros(len(keys), np.bool_)
        marks = self if version == self.version else Marks(version=version)
        before = marks.highest.get(owner, -1)
        fresh: Mask = np.ones(len(keys), np.bool_) if before < 0 else keys > np.uint64(before)
        if not fresh.any():
            return marks, fresh
        return replace(marks, highest={**marks.highest, owner: int(keys[-1])}), fresh


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """Rows that wait, in the order in which they came."""

    keys: Keys = field(default_factory=lambda: NO_KEYS)
    rows: Numbers = field(default_factory=lambda: NO_ROWS)

    def __len__(self) -> int:
        """How many rows."""
        return len(self.keys)

    def plus(self, keys: Keys, rows: Numbers) -> Stored:
        """With more rows behind."""
        return Stored(np.concatenate([self.keys, keys]), np.concatenate([self.rows, rows])) if len(keys) else self

    def parted(self, chosen: Mask) -> tuple[Stored, Stored]:
        """The chosen rows, and the others."""
        return Stored(self.keys[chosen], self.rows[chosen]), Stored(self.keys[~chosen], self.rows[~chosen])


def dealt(keys: Keys, rows: Numbers, places: Numbers) -> Iterator[tuple[int, Keys, Numbers]]:
    """The rows of each place; rows of one place keep their order."""
    if not len(places):
        return
    if (places == places[0]).all():
        yield int(places[0]), keys, rows
        return
    order = np.argsort(places, kind="stable")
    starts = np.flatnonzero(np.diff(places[order], prepend=places[order[0]] - 1))
    for part in np.split(order, starts[1:]):
        yield int(places[part[0]]), keys[part], rows[part]


def routed(keys: Keys, rows: Numbers, places: Numbers, version: int, region: int) -> tuple[list[Out], Stored]:
    """Rows on their way: downstream here, or to workers; and those to be stored."""
    out: list[Out] = []
    stored = Stored()
    for place, its_keys, its_rows in dealt(keys, rows, places):
        if place == HERE:
            out.append(Pass(keys=its_keys, rows=its_rows))
        elif place == STORE:
            stored = Stored(its_keys, its_rows)
        else:
            out.append(Send(to=place, message=Rows(version=version, keys=its_keys, rows=its_rows), region=region))
    return out, stored
