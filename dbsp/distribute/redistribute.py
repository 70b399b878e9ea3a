"""Redistribute: owners report to all senders which keys they still serve and which are on hold, and move state through
them.

Every worker is a sender (it routes rows) and an owner (it holds state). Rows always take one hop, because only the
sender decides. An owner that loses keys waits for a notice of all senders before it reports its sets, and again before
it hands out a state. So no row of such a key is on its way to it. It hands the state to every sender. Each sender
passes the state to the new owner before the first row that it routes there itself. The new owner takes the first copy.

The sequence, per owner that loses keys: `SHUTDOWN or SCALEUP from all senders → its sets (whitelist, hold) to all →
FINAL(hold) from all → REDISTRIBUTE(hold, state, next hold) to all → FINAL …` until nothing is left.

Deviations from the seed, each with a test that fails without it (tests/distribute/test_deviations.py):

- From SHUTDOWN or SCALEUP until the sets arrive, a sender stores rows for that owner. As first written, a key that arrives in
  between is in neither set, and its state at the old owner is forgotten.
- A key that belongs to the same worker before and after is always routed there, and never waits.
- A new owner takes the first state of a key and ignores the copies of the other senders, which would undo later rows.
- SHUTDOWN names the new layout too, so that an owner knows of all senders, also of those that just joined.

Left out: operators in a chain that pass FINAL and REDISTRIBUTE on. The host asks all operators of the region at once,
which gives the same messages between workers.

Source: docs/concepts/rescale.md; design record 0015. Invariant 2.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from dbsp.distribute.distributor import HERE, STORE, Marks, Stored, dealt, routed
from dbsp.distribute.keys import NO_KEYS, Keys, Mask, Numbers, contains, losing, owner_of, union, without
from dbsp.distribute.messages import (
    Acquire,
    AddKeys,
    BeginMessage,
    Cancel,
    Collect,
    Collected,
    Drop,
    Event,
    FinalMessage,
    FinishedMessage,
    Interrogate,
    Interrogated,
    KeySetsMessage,
    Local,
    Message,
    Move,
    Out,
    Pass,
    Received,
    RedistributeMessage,
    RowsMessage,
    ScaleUp,
    Send,
    ShutdownMessage,
    Take,
)
from dbsp.errors import InternalError
from dbsp.layout import Layout


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Giving:
    """An owner's side: the keys that it has yet to give away in the migration to `layout`.

    `heard` are the senders of SHUTDOWN or SCALEUP, `final` the senders whose FINAL for `hold` has arrived.
    """

    layout: Layout
    heard: frozenset[int] = frozenset()
    told: bool = False
    whitelist: Keys = field(default_factory=lambda: NO_KEYS)
    hold: Keys = field(default_factory=lambda: NO_KEYS)
    final: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RedistributeDistributor:
    """A worker's distributor, as sender and owner; `old` is F, `new` is F' while this worker may still route rows by F.

    `whitelist` and `hold` have the keys of all owners together: a key's owner follows from F. `waiting` are the owners that
    have not reported their sets, `draining` the owners whose sets are not empty.

    **State** The sets of all owners on every sender. They are the price of the strategy, and the reason that rows need
    one hop only.

    **Cost** Per row one look-up in each set.
    """

    worker: int
    old: Layout
    region: int = 0
    new: Layout | None = None
    pace: int = 0
    waiting: frozenset[int] = frozenset()
    draining: frozenset[int] = frozenset()
    whitelist: Keys = field(default_factory=lambda: NO_KEYS)
    hold: Keys = field(default_factory=lambda: NO_KEYS)
    stored: Stored = field(default_factory=Stored)
    giving: Giving | None = None
    given_version: int = -1
    taken: Marks = field(default_factory=Marks)

    @property
    def migrating(self) -> bool:
        """Return whether a migration has begun here and not ended."""
        return self.new is not None or self.giving is not None

    @property
    def layout(self) -> Layout:
        """Return the layout that applies once no key moves any more."""
        return self.old if self.new is None else self.new

    @property
    def at_rest(self) -> bool:
        """Return whether no row is stored and no key on hold, here or as an owner."""
        return not (len(self.hold) or len(self.stored) or self.waiting or (self.giving and len(self.giving.hold)))

    @property
    def left(self) -> int:
        """Return how many keys this worker has yet to give away."""
        return len(self.giving.whitelist) + len(self.giving.hold) if self.giving else 0

    def handle(self, event: Event) -> tuple[RedistributeDistributor, list[Out]]:
        """Return the distributor after the event, and the resulting actions in order; handle its messages to itself at once."""
        here, wanted = self._handle(event)
        out: list[Out] = []
        for item in wanted:
            if isinstance(item, Send) and item.to == self.worker:
                here, more = here.handle(Received(sender=self.worker, message=item.message, region=self.region))
                out += more
            else:
                out.append(item)
        return here, out

    def _handle(self, event: Event) -> tuple[RedistributeDistributor, list[Out]]:
        match event:
            case Local(keys=keys, rows=rows):
                return self._rows(keys, rows)
            case Received(sender=sender, message=message, region=self.region):
                return self._received(sender, message)
            case BeginMessage(layout=layout, pace=pace):
                return self._begin(layout, pace)
            case Move(budget=budget):
                return self._move(budget)
            case Cancel(version=version):
                return self._cancel(version)
            case _:
                return self._answered(event)

    def _answered(self, event: Event) -> tuple[RedistributeDistributor, list[Out]]:
        """Handle a reply of the operators; ignore a late reply and a reply of another region.

        `Enter` changes nothing either, because the keys are known.
        """
        giving = self.giving
        match event:
            case AddKeys(keys=keys, region=self.region) if giving is not None and not giving.told:
                mine = (
                    owner_of(self.old, keys) == self.worker
                )  # operators may still report keys that moved away earlier, for stored rows that cancel out
                leaving = keys[mine & (owner_of(giving.layout, keys) != self.worker)]
                return replace(self, giving=replace(giving, whitelist=union(giving.whitelist, leaving))), []
            case Interrogated(region=self.region) if giving is not None and not giving.told:
                return self._tell(giving)
            case Collected(keys=keys, state=state, region=self.region):
                return self._collected(keys, state)
            case _:
                return self, []

    def _received(self, sender: int, message: Message) -> tuple[RedistributeDistributor, list[Out]]:
        match message:
            case RowsMessage(keys=keys, rows=rows):  # the sender has decided that the state is here
                return self, [Pass(keys=keys, rows=rows)]
            case Acquire(version=version, owner=owner, keys=keys, state=state):
                marks, fresh = self.taken.new(version, owner, keys)
                here = replace(self, taken=marks)
                return here, [Take(keys=keys[fresh], state=state, region=self.region)] if fresh.any() else []
            case ShutdownMessage(layout=layout) | ScaleUp(layout=layout):
                return self._heard(sender, layout)
            case FinalMessage(version=version, keys=keys):
                return self._final(sender, version, keys)
            case KeySetsMessage(version=version, whitelist=whitelist, hold=hold):
                return self._sets(sender, version, whitelist, hold)
            case RedistributeMessage():
                return self._redistributed(sender, message)
            case _:
                kind = type(message).__name__
                raise InternalError(f"not a message of redistribute: message={kind} worker={self.worker}")

    def _to_all(self, layout: Layout, message: Message) -> list[Out]:
        senders = sorted(self._senders(layout))
        return [Send(to=sender, message=message, region=self.region) for sender in senders]

    def _senders(self, layout: Layout) -> frozenset[int]:
        """Return all workers that route rows in the migration to a layout: those before, and those after."""
        return frozenset({*self.old.workers, *layout.workers})

    # As a sender.

    def _rows(self, keys: Keys, rows: Numbers) -> tuple[RedistributeDistributor, list[Out]]:
        places = self._places(keys)
        out, stored = routed(keys, rows, places, self.layout.version, self.region)
        return (replace(self, stored=self.stored.plus(stored.keys, stored.rows)) if len(stored) else self), out

    def _places(self, keys: Keys) -> Numbers:
        """Return the place of each row: HERE, STORE or a worker."""
        places = before = owner_of(self.old, keys)
        if self.new is not None:
            after = owner_of(self.new, keys)
            places = np.where(contains(self.whitelist, keys), before, after)
            places = np.where(contains(self.hold, keys) | unknown(before, self.waiting), STORE, places)
            places = np.where(before == after, after, places)
        return np.where(places == self.worker, HERE, places)

    def _begin(self, layout: Layout, pace: int) -> tuple[RedistributeDistributor, list[Out]]:
        if self.new is not None:
            raise InternalError(f"a migration is under way: worker={self.worker} version={self.new.version}")
        asked = losing(self.old, layout)
        here = replace(self, new=layout, pace=pace, waiting=asked, draining=asked)
        out: list[Out] = []
        for owner in sorted(asked):
            staying = owner in layout.workers
            message = (ScaleUp if staying else ShutdownMessage)(version=layout.version, layout=layout)
            out.append(Send(to=owner, message=message, region=self.region))
        here, more = here._ended()
        return here, out + more

    def _sets(self, owner: int, version: int, whitelist: Keys, hold: Keys) -> tuple[RedistributeDistributor, list[Out]]:
        """Note an owner's sets, and route the rows stored for the owner."""
        if self.new is None or version != self.new.version or owner not in self.waiting:
            return self, []
        here = replace(
            self,
            waiting=self.waiting - {owner},
            whitelist=union(self.whitelist, whitelist),
            hold=union(self.hold, hold),
        )
        final: list[Out] = [self._finally(owner, hold)] if len(hold) else []
        here, out = here._release(owner_of(here.old, here.stored.keys) == owner)
        here, more = here._drained(owner)
        return here, out + final + more

    def _finally(self, owner: int, keys: Keys) -> Send:
        return Send(to=owner, message=FinalMessage(version=self.layout.version, keys=keys), region=self.region)

    def _release(self, chosen: Mask) -> tuple[RedistributeDistributor, list[Out]]:
        """Route stored rows by the present rules; some may be stored again."""
        free, waiting = self.stored.parted(chosen)
        return replace(self, stored=waiting)._rows(free.keys, free.rows)

    def _redistributed(self, owner: int, message: RedistributeMessage) -> tuple[RedistributeDistributor, list[Out]]:
        """Pass on a state and the rows that waited for it, and note the next keys on hold."""
        keys, following = message.keys, message.following
        repeated = not contains(self.hold, keys).all() or not contains(self.whitelist, following).all()
        if self.new is None or message.version != self.new.version or owner not in self.draining or repeated:
            return self, []
        out: list[Out] = []
        for to, some, _ in dealt(keys, np.zeros(len(keys), np.int64), owner_of(self.new, keys)):
            acquire = Acquire(version=message.version, owner=owner, keys=some, state=message.state)
            out.append(Send(to=to, message=acquire, region=self.region))
        here = replace(
            self, hold=union(without(self.hold, keys), following), whitelist=without(self.whitelist, following)
        )
        here, rows = here._release(contains(keys, here.stored.keys))
        out += rows
        if len(following):
            out.append(self._finally(owner, following))
        here, more = here._drained(owner)
        return here, out + more

    def _drained(self, owner: int) -> tuple[RedistributeDistributor, list[Out]]:
        """Remove an owner whose key sets are empty from `draining`; when no owner is left there, F' applies."""
        kept = (owner_of(self.old, keys) == owner for keys in (self.whitelist, self.hold))
        if any(found.any() for found in kept):
            return self, []
        return replace(self, draining=self.draining - {owner})._ended()

    def _ended(self) -> tuple[RedistributeDistributor, list[Out]]:
        if self.new is None or self.draining:
            return self, []
        over = replace(self, old=self.new, new=None)
        return over, [FinishedMessage(version=self.new.version)]

    # As an owner.

    def _heard(self, sender: int, layout: Layout) -> tuple[RedistributeDistributor, list[Out]]:
        """Handle SHUTDOWN or SCALEUP; after those of all senders, no row of a leaving key is on its way to this worker."""
        giving = self.giving or Giving(layout=layout)
        repeated = layout.version <= self.given_version or giving.told or sender in giving.heard
        if repeated or giving.layout.version != layout.version:
            return self, []
        heard = giving.heard | {sender}
        asked: list[Out] = [Interrogate(region=self.region)] if heard.issuperset(self._senders(layout)) else []
        return replace(self, giving=replace(giving, heard=heard)), asked

    def _tell(self, giving: Giving) -> tuple[RedistributeDistributor, list[Out]]:
        """Report the key sets to all senders; with a `pace`, the first keys are put on hold at once, without a command."""
        chosen, rest = giving.whitelist[: self.pace], giving.whitelist[self.pace :]
        sets = KeySetsMessage(version=giving.layout.version, whitelist=rest, hold=chosen)
        here = self._gives(replace(giving, told=True, whitelist=rest, hold=chosen))
        return here, self._to_all(giving.layout, sets)

    def _gives(self, giving: Giving) -> RedistributeDistributor:
        """Return the distributor with the keys that are left to give away; without them if there are none."""
        if len(giving.whitelist) or len(giving.hold):
            return replace(self, giving=giving)
        return replace(self, giving=None, given_version=giving.layout.version)

    def _move(self, budget: int) -> tuple[RedistributeDistributor, list[Out]]:
        """Put the next keys in hash order on hold, as commanded."""
        giving = self.giving
        if giving is None or not giving.told or len(giving.hold) or not len(giving.whitelist):
            return self, []
        return self._next(giving, NO_KEYS, None, budget)

    def _next(
        self, giving: Giving, keys: Keys, state: object, budget: int
    ) -> tuple[RedistributeDistributor, list[Out]]:
        """Send REDISTRIBUTE: the state of these keys, and the next keys on hold."""
        chosen, rest = giving.whitelist[:budget], giving.whitelist[budget:]
        message = RedistributeMessage(version=giving.layout.version, keys=keys, state=state, following=chosen)
        here = self._gives(replace(giving, whitelist=rest, hold=chosen, final=frozenset()))
        return here, self._to_all(giving.layout, message)

    def _final(self, sender: int, version: int, keys: Keys) -> tuple[RedistributeDistributor, list[Out]]:
        giving = self.giving
        if giving is None or version != giving.layout.version or not np.array_equal(keys, giving.hold):
            return self, []
        if sender in giving.final:
            return self, []
        final = giving.final | {sender}
        here = replace(self, giving=replace(giving, final=final))
        if not final.issuperset(self._senders(giving.layout)):
            return here, []
        return here, [Collect(keys=keys, region=self.region)]

    def _collected(self, keys: Keys, state: object) -> tuple[RedistributeDistributor, list[Out]]:
        giving = self.giving
        if giving is None or not np.array_equal(keys, giving.hold):
            raise InternalError(f"a state was collected that is not on hold: worker={self.worker} keys={len(keys)}")
        here, out = self._next(giving, keys, state, self.pace)
        return here, [Drop(keys=keys, region=self.region), *out]

    def _cancel(self, version: int) -> tuple[RedistributeDistributor, list[Out]]:
        """Cancel the migration between two steps: begin one from F' back to F, under a new version.

        The new migration is like any other. The new owners of the cancelled migration report their keys that belonged to
        the old owners. All other rows are routed to the old owners, which have the state.
        """
        if self.new is None or not self.at_rest:
            raise InternalError(f"nothing to cancel, or not between two steps: worker={self.worker}")
        back = replace(self.old, version=version)
        turned = replace(
            self, old=self.new, new=None, waiting=frozenset(), draining=frozenset(), whitelist=NO_KEYS, giving=None
        )
        return turned._begin(back, 0)


def unknown(before: Numbers, waiting: frozenset[int]) -> Mask:
    """Return the mask of the rows whose old owner has not reported its sets yet.

    >>> unknown(np.array([0, 1, 2]), frozenset({1})).tolist()
    [False, True, False]
    """
    found: Mask = np.isin(before, np.array(sorted(waiting), np.int64))
    return found
