"""ICADD: owners determine the keys that they hold, then give these keys away, while rows are routed via the old owner.

No worker needs a map of all keys. In the second phase, a worker may get a row of a key that it will own but has no
state for. It sends the row to the key's old owner. The old owner passes the row downstream if it still has the state,
and otherwise gives it back. Then the row is where its state is, or the key has no state anywhere.

Phases: STEADY (layout F) → INTERROGATE (keys are determined; F still applies) → COLLECT (F', keys move) → STEADY
(layout F'). The version increases with COLLECT. The message `Done` of every worker of F ends the migration.

Deviations from the seed, each with a test that fails without it (tests/distribute/test_deviations.py):

- A row of a higher version passes only if its sender is the key's old owner; otherwise this worker's own rules apply. In the
  protocol as written, a late worker passes a row that the old owner, which has the state, never saw.
- A key that belongs to this worker before and after always passes. The written rule 3 sends a row of such a key from
  another worker on to this worker itself.
- A row from its key's old owner counts as given back only if it has this migration's version. A row of the migration before,
  still in transit, does not show where the state is (found by the simulator).
- A state that arrives again is not taken again.

The order of a key's rows is kept per route, not across routes. A direct row may overtake a row that is routed via the old
owner.
Within a step of the engine the rows of a change have no order, and all are processed before the step ends.

Source: docs/concepts/rescale.md; design record 0015. Invariant 2.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum

import numpy as np

from dbsp.distribute.distributor import HERE, STORE, Marks, Stored, dealt, routed
from dbsp.distribute.keys import NO_KEYS, Keys, Mask, Numbers, contains, keys_of, owner_of, union, without
from dbsp.distribute.messages import (
    Acquire,
    AddKeys,
    BeginMessage,
    Cancel,
    Collect,
    Collected,
    Done,
    Drop,
    Enter,
    Event,
    FinishedMessage,
    Interrogate,
    Interrogated,
    Local,
    Message,
    Move,
    Out,
    Received,
    RowsMessage,
    Send,
    Take,
)
from dbsp.errors import InternalError
from dbsp.layout import Layout


class Phase(IntEnum):
    """A worker's phase in its migration."""

    STEADY = 0
    INTERROGATE = 1
    COLLECT = 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IcaddDistributor:
    """A worker's distributor; `old` is F, `new` is F' while a migration is under way.

    **State** The keys yet to give away, and one mark per worker.

    **Cost** Per row one look-up in `whitelist` and `hold` in COLLECT; at most two further hops.
    """

    worker: int
    old: Layout
    region: int = 0
    new: Layout | None = None
    phase: Phase = Phase.STEADY
    pace: int = 0
    known: bool = False
    back: bool = False
    whitelist: Keys = field(default_factory=lambda: NO_KEYS)
    hold: Keys = field(default_factory=lambda: NO_KEYS)
    stored: Stored = field(default_factory=Stored)
    given: bool = False
    finished_version: int = -1
    finished: frozenset[int] = frozenset()
    taken: Marks = field(default_factory=Marks)

    @property
    def migrating(self) -> bool:
        """Return whether a migration has begun here and not ended."""
        return self.new is not None

    @property
    def layout(self) -> Layout:
        """Return the layout that applies once no key moves any more."""
        return self.old if self.new is None else self.new

    @property
    def at_rest(self) -> bool:
        """Return whether no row is stored and no key on hold."""
        return not len(self.hold) and not len(self.stored)

    @property
    def left(self) -> int:
        """Return the number of known keys that this worker has yet to give away."""
        return len(self.whitelist) + len(self.hold)

    @property
    def version(self) -> int:
        """Return the version that every message carries: the version of F before COLLECT, of F' from COLLECT on."""
        return self.new.version if self.new is not None and self.phase is Phase.COLLECT else self.old.version

    def handle(self, event: Event) -> tuple[IcaddDistributor, list[Out]]:
        """Return the distributor after the event, and the resulting actions in order."""
        match event:
            case Local(keys=keys, rows=rows):
                return self._rows(keys, rows, self.worker, self.version)
            case Received(sender=sender, message=message, region=self.region):
                return self._received(sender, message)
            case BeginMessage(layout=layout, pace=pace):
                return self._begin(layout, pace)
            case Enter():
                return self._enter()
            case Move(budget=budget):
                return self._move(budget)
            case Cancel(version=version):
                return self._cancel(version)
            case _:
                return self._answered(event)

    def _answered(self, event: Event) -> tuple[IcaddDistributor, list[Out]]:
        """Handle a reply of the operators; ignore a late reply and a reply of another region."""
        match event:
            case AddKeys(keys=keys, region=self.region) if self.phase is Phase.INTERROGATE:
                return replace(self, whitelist=union(self.whitelist, keys)), []
            case Interrogated(region=self.region) if self.phase is Phase.INTERROGATE:
                known = replace(self, known=True)
                return known._enter() if self.pace or self.back else (known, [])
            case Collected(keys=keys, state=state, region=self.region):
                return self._collected(keys, state)
            case _:
                return self, []

    def _received(self, sender: int, message: Message) -> tuple[IcaddDistributor, list[Out]]:
        match message:
            case RowsMessage(version=version, keys=keys, rows=rows):
                return self._rows(keys, rows, sender, version)
            case Acquire(version=version, owner=owner, keys=keys, state=state):
                marks, fresh = self.taken.new(version, owner, keys)
                here = replace(self, taken=marks)
                return here, [Take(keys=keys[fresh], state=state, region=self.region)] if fresh.any() else []
            case Done(version=version, worker=worker):
                return self._done(version, worker)
            case _:
                raise InternalError(f"not a message of icadd: message={type(message).__name__} worker={self.worker}")

    # Routing of rows.

    def _rows(self, keys: Keys, rows: Numbers, sender: int, version: int) -> tuple[IcaddDistributor, list[Out]]:
        here = self
        if self.back:
            raise InternalError(f"rows came before a cancelled migration had turned round: worker={self.worker}")
        if self.new is not None and self.phase is Phase.INTERROGATE:
            leaving = (owner_of(self.old, keys) == self.worker) & (owner_of(self.new, keys) != self.worker)
            if leaving.any():
                here = replace(self, whitelist=union(self.whitelist, keys_of(keys[leaving])))
        places = here._places(keys, sender, version)
        out, stored = routed(keys, rows, places, self.version, self.region)
        return (replace(here, stored=here.stored.plus(stored.keys, stored.rows)) if len(stored) else here), out

    def _places(self, keys: Keys, sender: int, version: int) -> Numbers:
        """Return the place of each row: HERE, STORE or a worker."""
        before = owner_of(self.old, keys)
        if self.new is not None and self.phase is Phase.COLLECT:
            places = collect_places(
                self.worker, before, owner_of(self.new, keys), contains(self.whitelist, keys),
                contains(self.hold, keys), given_back(before, sender, version, self.version),
            )  # fmt: skip
        else:
            places = np.where(before == self.worker, HERE, before)
        if version > self.version:
            places = np.where(from_newer_passes(before, sender), HERE, places)
        return places

    # The phases.

    def _begin(self, layout: Layout, pace: int) -> tuple[IcaddDistributor, list[Out]]:
        if self.new is not None:
            raise InternalError(f"a migration is under way: worker={self.worker} version={self.new.version}")
        here = replace(self, new=layout, phase=Phase.INTERROGATE, pace=pace, known=False, given=False)
        return here, [Interrogate(region=self.region)]

    def _enter(self) -> tuple[IcaddDistributor, list[Out]]:
        """Enter COLLECT: of the determined keys, keep those that this worker owns under F and not under F'."""
        if self.new is None or self.phase is not Phase.INTERROGATE or not self.known:
            raise InternalError(f"keys move before all are known: worker={self.worker} phase={self.phase.name}")
        mine = (
            owner_of(self.old, self.whitelist) == self.worker
        )  # operators may still report keys that moved away earlier, for stored rows that cancel out
        leaving = self.whitelist[mine & (owner_of(self.new, self.whitelist) != self.worker)]
        here = replace(self, phase=Phase.COLLECT, whitelist=leaving, back=False)
        return here._go_on()

    def _move(self, budget: int) -> tuple[IcaddDistributor, list[Out]]:
        """Put the next keys in hash order on hold, and collect their state."""
        if self.phase is not Phase.COLLECT or len(self.hold) or not len(self.whitelist):
            return self, []
        chosen, rest = self.whitelist[:budget], self.whitelist[budget:]
        return replace(self, hold=chosen, whitelist=rest), [Collect(keys=chosen, region=self.region)]

    def _collected(self, keys: Keys, state: object) -> tuple[IcaddDistributor, list[Out]]:
        """Send the state, then the rows that waited for it, and drop these keys here."""
        if self.new is None or not len(keys) or not contains(self.hold, keys).all():
            raise InternalError(f"a state was collected that is not on hold: worker={self.worker} keys={len(keys)}")
        out: list[Out] = []
        for to, some, _ in dealt(keys, np.zeros(len(keys), np.int64), owner_of(self.new, keys)):
            message = Acquire(version=self.version, owner=self.worker, keys=some, state=state)
            out.append(Send(to=to, message=message, region=self.region))
        free, waiting = self.stored.parted(contains(keys, self.stored.keys))
        sent, _ = routed(free.keys, free.rows, owner_of(self.new, free.keys), self.version, self.region)
        out += [*sent, Drop(keys=keys, region=self.region)]
        here, more = replace(self, hold=without(self.hold, keys), stored=waiting)._go_on()
        return here, out + more

    def _go_on(self) -> tuple[IcaddDistributor, list[Out]]:
        """Send `Done` once no key is left to give; before, move the next keys if the migration has a `pace` of its own."""
        if self.left:
            return self._move(self.pace) if self.pace else (self, [])
        if self.new is None or self.given:
            return self, []
        others = sorted({*self.old.workers, *self.new.workers} - {self.worker})
        done = Done(version=self.version, worker=self.worker)
        out: list[Out] = [Send(to=other, message=done, region=self.region) for other in others]
        here, more = replace(self, given=True)._done(self.version, self.worker)
        return here, out + more

    def _done(self, version: int, worker: int) -> tuple[IcaddDistributor, list[Out]]:
        """Note that a worker has no more keys to give, and end the migration if this is true of all workers of F.

        A worker that begins late also notes the workers that were done before.
        """
        if version < self.finished_version or version <= self.old.version:
            return self, []
        before = self.finished if version == self.finished_version else frozenset()
        here = replace(self, finished_version=version, finished=before | {worker})
        if here.new is None or version != here.new.version or not here.given:
            return here, []
        if not here.finished.issuperset(here.old.workers):
            return here, []
        over = replace(
            here, old=here.new, new=None, phase=Phase.STEADY, pace=0, known=False, given=False,
            finished=frozenset(),
        )  # fmt: skip
        return over, [FinishedMessage(version=version)]

    def _cancel(self, version: int) -> tuple[IcaddDistributor, list[Out]]:
        """Cancel the migration between two steps: begin one from F' back to F, under a new version.

        The operators report all their keys again, because this worker has taken states and seen new keys. No row moves
        before the report, so COLLECT follows at once. A row whose key never moved is sent to the owner under F', which
        has no state and gives it back.
        """
        if self.new is None or not self.at_rest:
            raise InternalError(f"nothing to cancel, or not between two steps: worker={self.worker}")
        back = replace(self.old, version=version)
        here = replace(
            self,
            old=self.new,
            new=back,
            phase=Phase.INTERROGATE,
            known=False,
            given=False,
            back=True,
            whitelist=NO_KEYS,
        )
        return here, [Interrogate(region=self.region)]


def collect_places(
    worker: int, before: Numbers, after: Numbers, whitelisted: Mask, on_hold: Mask, returned: Mask
) -> Numbers:
    """Return the places of rows in COLLECT, by the owners of their keys before and after.

    >>> before, after = np.array([0, 0, 0, 1, 1]), np.array([1, 1, 1, 0, 0])
    >>> whitelisted, on_hold = np.array([1, 0, 0, 0, 0], bool), np.array([0, 1, 0, 0, 0], bool)
    >>> returned = np.array([0, 0, 0, 0, 1], bool)
    >>> collect_places(0, before, after, whitelisted, on_hold, returned).tolist()  # state here, leaving, gone; new, ours
    [-1, -2, 1, 1, -1]
    """
    stays = stays_here(worker, before, after)
    comes = (after == worker) & ~stays
    places = np.where(whitelisted, HERE, np.where(on_hold, STORE, after))
    places = np.where(comes, np.where(returned, HERE, before), places)
    return np.where(stays, HERE, places)


def given_back(before: Numbers, sender: int, version: int, own: int) -> Mask:
    """Return the mask of the rows that their key's old owner sent because it has no state for them.

    A row of an older version does not count: it was sent in the migration before, by other distribution functions.
    """
    found: Mask = (before == sender) & (version >= own)
    return found


def stays_here(worker: int, before: Numbers, after: Numbers) -> Mask:
    """Return the mask of the keys that belong to this worker before and after."""
    found: Mask = (before == worker) & (after == worker)
    return found


def from_newer_passes(before: Numbers, sender: int) -> Mask:
    """Return the mask of the rows from a sender of a higher version that pass here: their old owner is the sender itself.

    The old owner sends a row only if it has no state of the key.
    """
    found: Mask = before == sender
    return found
