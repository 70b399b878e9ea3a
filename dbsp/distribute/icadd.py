"""ICADD: owners find out which keys they hold, then give them away while rows find their way by asking the old owner.

Nobody needs a map of all keys. A worker in the second phase that gets a row of a key it will own, but has no state for, sends
it to the key's old owner; that one passes it downstream if it still has the state, and else gives it back, and then the row
is where its state is, or has none anywhere.

Phases: STEADY (layout F) → INTERROGATE (keys are found out; F still) → COLLECT (F', keys move) → STEADY (layout F'). The
version goes up with COLLECT. `Done` of every worker of F ends the migration.

Deviations from the seed, each with a test that fails without it (tests/distribute/test_deviations.py):

- a row of a higher version passes only where its sender is the key's old owner; else this worker's own rules apply. As the
  protocol was written, a worker that is late passes a row that the old owner, which has the state, never saw;
- a key that belongs to this worker before and after always passes; the written rule 3 sends a row of it from
  another worker on to this worker itself;
- a row that its key's old owner sent is one that it gave back only if it is of this migration's version; one that was under
  way since the migration before says nothing about where the state is (found by the simulator);
- a state that comes again is not taken again.

The order of a key's rows is kept per route, not across routes: a row that goes through the old owner may be overtaken by one
that need not. Within a step of the engine the rows of a change have no order, and all are processed before it ends.

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
    Begin,
    Cancel,
    Collect,
    Collected,
    Done,
    Drop,
    Enter,
    Event,
    Finished,
    Interrogate,
    Interrogated,
    Local,
    Message,
    Move,
    Out,
    Received,
    Rows,
    Send,
    Take,
)
from dbsp.errors import InternalError
from dbsp.layout import Layout


class Phase(IntEnum):
    """Where a worker is in its migration."""

    STEADY = 0
    INTERROGATE = 1
    COLLECT = 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IcaddDistributor:
    """One worker's distributor; `old` is F, `new` is F' while a migration is under way.

    **State** the keys yet to give away, and one mark per worker.
    **Cost** of a row: one look-up in `whitelist` and `hold` in COLLECT; at most two further hops.
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
        """Whether a migration has begun here and not ended."""
        return self.new is not None

    @property
    def layout(self) -> Layout:
        """The layout that holds once nothing moves any more."""
        return self.old if self.new is None else self.new

    @property
    def at_rest(self) -> bool:
        """Whether no row is stored and no key on hold."""
        return not len(self.hold) and not len(self.stored)

    @property
    def left(self) -> int:
        """How many keys this worker has yet to give away, as far as it knows them."""
        return len(self.whitelist) + len(self.hold)

    @property
    def version(self) -> int:
        """What goes with every message: that of F' from COLLECT on."""
        return self.new.version if self.new is not None and self.phase is Phase.COLLECT else self.old.version

    def handle(self, event: Event) -> tuple[IcaddDistributor, list[Out]]:
        """The distributor after the event, and what is to be done, in order."""
        match event:
            case Local(keys=keys, rows=rows):
                return self._rows(keys, rows, self.worker, self.version)
            case Received(sender=sender, message=message, region=self.region):
                return self._received(sender, message)
            case Begin(layout=layout, pace=pace):
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
        """What the operators answer; what is of another region, or late, changes nothing."""
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
            case Rows(version=version, keys=keys, rows=rows):
                return self._rows(keys, rows, sender, version)
            case Acquire(version=version, owner=owner, keys=keys, state=state):
                marks, fresh = self.taken.new(version, owner, keys)
                here = replace(self, taken=marks)
                return here, [Take(keys=keys[fresh], state=state, region=self.region)] if fresh.any() else []
            case Done(version=version, worker=worker):
                return self._done(version, worker)
            case _:
                raise InternalError(f"not a message of icadd: message={type(message).__name__} worker={self.worker}")

    # Rows.

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
        """Where rows go: HERE, STORE or a worker."""
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
        """To COLLECT: of the keys that were found out, those stay that are not for this worker any more."""
        if self.new is None or self.phase is not Phase.INTERROGATE or not self.known:
            raise InternalError(f"keys move before all are known: worker={self.worker} phase={self.phase.name}")
        mine = (
            owner_of(self.old, self.whitelist) == self.worker
        )  # of keys long gone there may be rows that add up to nothing
        leaving = self.whitelist[mine & (owner_of(self.new, self.whitelist) != self.worker)]
        here = replace(self, phase=Phase.COLLECT, whitelist=leaving, back=False)
        return here._go_on()

    def _move(self, budget: int) -> tuple[IcaddDistributor, list[Out]]:
        """The next keys in hash order are put on hold, and their state is collected."""
        if self.phase is not Phase.COLLECT or len(self.hold) or not len(self.whitelist):
            return self, []
        chosen, rest = self.whitelist[:budget], self.whitelist[budget:]
        return replace(self, hold=chosen, whitelist=rest), [Collect(keys=chosen, region=self.region)]

    def _collected(self, keys: Keys, state: object) -> tuple[IcaddDistributor, list[Out]]:
        """The state leaves, then the rows that waited for it, and nothing of these keys stays here."""
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
        """When nothing is left to give, say so once; else, at a pace of one's own, give more."""
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
        """A worker that is late remembers who was done before it began."""
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
        return over, [Finished(version=version)]

    def _cancel(self, version: int) -> tuple[IcaddDistributor, list[Out]]:
        """Back from F' to F, which is now the layout to come, between two steps.

        All that this worker holds is asked for again, because it has taken states and seen new keys. No row moves before
        the answer, so COLLECT follows at once: a row whose key never moved goes to the owner under F', which has no state
        and gives it back.
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
    """Where rows go in COLLECT, by the owners of their keys before and after.

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
    """Which rows their key's old owner has sent here because it has no state for them.

    A row of an older version is none of them: it was sent by other functions, in the migration before, and was late.
    """
    found: Mask = (before == sender) & (version >= own)
    return found


def stays_here(worker: int, before: Numbers, after: Numbers) -> Mask:
    """Keys that belong to this worker before and after."""
    found: Mask = (before == worker) & (after == worker)
    return found


def from_newer_passes(before: Numbers, sender: int) -> Mask:
    """Which rows of a sender of a higher version pass here: those whose old owner is the sender, which has no state."""
    found: Mask = before == sender
    return found
