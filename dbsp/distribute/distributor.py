"""Define the interface of a distributor, and the parts that both strategies share.

The shared parts are marks of taken state, stored rows, and the distribution of rows to places.

A distributor is placed between upstream and the stateful operators of one region on one worker. While the layout
changes from F to F', it decides where each row is sent, and when which state moves. It is a value: `handle` returns the
next distributor and a list of actions. It has no clock, does no I/O and knows other workers only by messages.

Invariant 2: a row passes downstream only on the worker that has the state of its key. A row whose state is not there
yet is stored. A row whose state is on another worker is sent on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

import numpy as np

from dbsp.distribute.keys import NO_KEYS, NO_ROWS, Keys, Mask, Numbers
from dbsp.distribute.messages import Event, Out, Pass, RowsMessage, Send
from dbsp.layout import Layout

HERE, STORE = -1, -2
"""Destinations of a row other than another worker: downstream on this worker, or the store of waiting rows."""


class Distributor(Protocol):
    """A worker's part of a migration, in one region."""

    @property
    def worker(self) -> int:
        """Return the number of the worker."""
        ...

    @property
    def migrating(self) -> bool:
        """Return whether a migration has begun here and not ended."""
        ...

    @property
    def layout(self) -> Layout:
        """Return the layout that applies once no key moves any more."""
        ...

    @property
    def at_rest(self) -> bool:
        """Return whether no row is stored and no key on hold, as at the end of every step."""
        ...

    @property
    def left(self) -> int:
        """Return the number of known keys that this worker has yet to give away."""
        ...

    def handle(self, event: Event) -> tuple[Self, list[Out]]:
        """Return the distributor after the event, and the resulting actions in order."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """The states that this worker has taken in the migration to `version`: per source worker, the highest key hash.

    Sources give their keys away in hash order, and the first copy of each state arrives in that order. So one number
    per source tells which copies are repeats.

    **State** One number per worker, however many keys move.
    """

    version: int = -1
    highest: Mapping[int, int] = field(default_factory=dict)

    def new(self, version: int, owner: int, keys: Keys) -> tuple[Marks, Mask]:
        """Return the marks with these keys, and the mask of the keys that arrive for the first time."""
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
    """Rows that wait, in the order of their arrival."""

    keys: Keys = field(default_factory=lambda: NO_KEYS)
    rows: Numbers = field(default_factory=lambda: NO_ROWS)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.keys)

    def plus(self, keys: Keys, rows: Numbers) -> Stored:
        """Return these rows followed by more rows."""
        return Stored(np.concatenate([self.keys, keys]), np.concatenate([self.rows, rows])) if len(keys) else self

    def parted(self, chosen: Mask) -> tuple[Stored, Stored]:
        """Return the chosen rows, and the others."""
        return Stored(self.keys[chosen], self.rows[chosen]), Stored(self.keys[~chosen], self.rows[~chosen])


def dealt(keys: Keys, rows: Numbers, places: Numbers) -> Iterator[tuple[int, Keys, Numbers]]:
    """Yield (place, keys, rows) for each place in `places`; rows of one place keep their order."""
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
    """Return the actions that pass rows downstream or send them to workers, and the rows to be stored."""
    out: list[Out] = []
    stored = Stored()
    for place, its_keys, its_rows in dealt(keys, rows, places):
        if place == HERE:
            out.append(Pass(keys=its_keys, rows=its_rows))
        elif place == STORE:
            stored = Stored(its_keys, its_rows)
        else:
            out.append(
                Send(to=place, message=RowsMessage(version=version, keys=its_keys, rows=its_rows), region=region)
            )
    return out, stored
