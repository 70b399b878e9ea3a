"""Workers that count per key, and two worlds for their distributors: any interleaving, and the rounds of steps.

The operators of a worker are a dictionary of counts. Whoever processes a row checks that nobody else holds the key and that
no count was left behind (invariant 2), and that no row is processed twice.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dbsp.distribute.distributor import Distributor
from dbsp.distribute.encoding import decode, encode
from dbsp.distribute.keys import Keys, Numbers, keys_of, owner_of
from dbsp.distribute.messages import (
    AddKeys,
    BeginMessage,
    Cancel,
    Collect,
    Collected,
    Downstream,
    Drop,
    Enter,
    Event,
    FinishedMessage,
    Interrogate,
    Interrogated,
    Local,
    Message,
    Move,
    Pass,
    Received,
    RowsMessage,
    Send,
    Take,
)
from dbsp.distribute.rounds import run_rounds
from dbsp.distribute.strategies import distributor
from dbsp.layout import Layout, rescaled

DELIVERIES_MAX = 200_000


class Broken(AssertionError):  # noqa: N818 - what a seed shows is not an error of the program
    """A row was processed where its state is not, or twice, or never."""


@dataclass
class Truth:
    """What all workers together did."""

    operators: dict[int, Counting] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)
    processed: set[int] = field(default_factory=set)
    outputs: list[tuple[int, int]] = field(default_factory=list)
    taken: Counter[int] = field(default_factory=Counter)

    def counts(self) -> dict[int, int]:
        """All counts; a key that two workers hold is a broken invariant."""
        found: dict[int, int] = {}
        for worker, operators in self.operators.items():
            for key, count in operators.state.items():
                if key in found:
                    raise Broken(f"a key has two owners: key={key:x} worker={worker}")
                found[key] = count
        return found


@dataclass
class Counting:
    """A worker's operators: a count per key."""

    worker: int
    truth: Truth
    state: dict[int, int] = field(default_factory=dict)

    def ordered(self, order: Downstream) -> Sequence[Event]:
        """Do what the distributor says."""
        match order:
            case Interrogate():
                return [self.some_keys(0), self.some_keys(1), Interrogated()]
            case Collect(keys=keys):
                return [Collected(keys=keys, state={key: self.state[key] for key in keys.tolist()})]
            case Take(keys=keys, state=state):
                for key in keys.tolist():
                    self.truth.taken[key] += 1
                    if key in self.state:
                        raise Broken(f"a state was taken over another: key={key:x} worker={self.worker}")
                    self.state[key] = state[key]
            case Drop(keys=keys):
                for key in keys.tolist():
                    del self.state[key]
        return []

    def some_keys(self, operator: int) -> AddKeys:
        """What one of two operators answers: each has the state of one half of the hashes."""
        return AddKeys(keys=keys_of(sorted(key for key in self.state if key >> 63 == operator)))

    def passed(self, keys: Keys, rows: Numbers) -> None:
        """Count rows."""
        for key, row in zip(keys.tolist(), rows.tolist(), strict=True):
            if row in self.truth.processed:
                raise Broken(f"a row was processed twice: row={row}")
            others = [w for w, other in self.truth.operators.items() if key in other.state and w != self.worker]
            if others or (key in self.truth.seen and key not in self.state):
                raise Broken(f"a row was processed without its state: key={key:x} worker={self.worker} at={others}")
            self.truth.seen.add(key)
            self.truth.processed.add(row)
            self.state[key] = self.state.get(key, 0) + 1
            self.truth.outputs.append((key, self.state[key]))


def key_pool(rng: random.Random, count: int) -> list[int]:
    """Key hashes all over the range, the ends among them."""
    return [0, (1 << 64) - 1, *(rng.getrandbits(64) for _ in range(count - 2))]


def walk(first: Layout, counts: Iterable[int]) -> list[Layout]:
    """Layouts one after another."""
    layouts = [first]
    for workers in counts:
        layouts.append(rescaled(layouts[-1], workers, step=len(layouts)))
    return layouts


@dataclass
class Interleaved:
    """Any interleaving of rows, commands, answers and messages; messages of one pair stay in order.

    Commands reach every worker at a time of its own. Messages that are no rows and no command are repeated now and then, the
    repetition coming any time later. Answers of the operators come late; rows are processed meanwhile.
    """

    strategy: str
    seed: int
    layout: Layout
    pace: int = 2
    keys: int = 30
    repeat: float = 0.2

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.truth = Truth()
        self.parts: dict[int, Distributor] = {}
        self.links: dict[tuple[int, int], deque[Message]] = {}
        self.orders: dict[int, deque[Any]] = {}
        self.commands: dict[int, Event] = {}
        self.over: dict[int, int] = {}
        self.pool = key_pool(self.rng, self.keys)
        self.fed: list[int] = []
        self.trail: list[str] = []
        self.speed: dict[Any, float] = {}  # some links are slow for the whole run
        for worker in self.layout.workers:
            self._join(worker, self.layout)

    def _join(self, worker: int, layout: Layout) -> None:
        self.parts[worker] = distributor(self.strategy, worker, layout)
        self.truth.operators[worker] = Counting(worker, self.truth)
        self.orders[worker] = deque()

    def rescale(self, new: Layout, rows: int) -> None:
        """Migrate while rows come; then wait for all to be over, and take the leaving workers away."""
        old, self.layout = self.layout, new
        for worker in new.workers:
            if worker not in self.parts:
                self._join(worker, old)
        self.commands = {worker: BeginMessage(layout=new, pace=self.pace) for worker in self.parts}
        target = len(self.fed) + rows
        for _ in range(DELIVERIES_MAX):
            settled = all(self.over.get(worker) == new.version for worker in self.parts)
            if settled and len(self.fed) >= target and not self._busy(set(old.workers) - set(new.workers)):
                break
            self._one(feeding=len(self.fed) < target)
        else:
            raise Broken(f"a migration does not end: {self.parts}")
        for worker in set(old.workers) - set(new.workers):
            if self.truth.operators[worker].state:
                raise Broken(f"a worker left with state: worker={worker}")
            del self.parts[worker], self.truth.operators[worker], self.orders[worker]
            self.links = {pair: link for pair, link in self.links.items() if worker not in pair}

    def _busy(self, leaving: set[int]) -> bool:
        return any(link for pair, link in self.links.items() if leaving & set(pair))

    def drain(self) -> None:
        """Let everything arrive."""
        for _ in range(DELIVERIES_MAX):
            if not any(self.links.values()) and not any(self.orders.values()):
                return
            self._one(feeding=False)
        raise Broken("messages go round for ever")

    def _one(self, feeding: bool) -> None:
        """One thing happens somewhere."""
        choices = [("link", pair) for pair in sorted(pair for pair, link in self.links.items() if link)]
        choices += [("order", worker) for worker in sorted(worker for worker, left in self.orders.items() if left)]
        choices += [("command", worker) for worker in sorted(self.commands)] if self.rng.random() < 0.3 else []
        if feeding and self.rng.random() < 0.5:
            choices = [("rows", worker) for worker in sorted(self.parts)]
        if not choices:
            choices = [("command", worker) for worker in sorted(self.commands)]
        if not choices:
            return
        weights = [
            self.speed.setdefault(c, self.rng.choice((1.0, 1.0, 0.02))) if c[0] == "link" else 1.0 for c in choices
        ]
        kind, place = self.rng.choices(choices, weights)[0]
        self.trail.append(f"{kind}{place}")
        match kind:
            case "rows":
                keys = [self.rng.choice(self.pool) for _ in range(self.rng.randint(1, 4))]
                numbers = list(range(len(self.fed), len(self.fed) + len(keys)))
                self.fed += keys
                self._tell(place, Local(keys=np.array(keys, np.uint64), rows=np.array(numbers, np.int64)))
            case "command":
                self._tell(place, self.commands.pop(place))
            case "order":
                self._answer(place)
            case "link":
                message = self.links[place].popleft()
                if not isinstance(message, RowsMessage) and self.rng.random() < self.repeat:
                    self.links[place].append(message)
                self._tell(place[1], Received(sender=place[0], message=message))

    def _answer(self, worker: int) -> None:
        """The operators answer; `Interrogate` reaches them one by one, the second on two paths, and rows pass between."""
        operators = self.truth.operators[worker]
        match self.orders[worker].popleft():
            case Interrogate():
                self.orders[worker].extendleft([Interrogated(), 1, 1, 0])
            case int(operator):
                self._tell(worker, operators.some_keys(operator))
            case Interrogated() as end:
                self._tell(worker, end)
            case order:
                for answer in operators.ordered(order):
                    self._tell(worker, answer)

    def _tell(self, worker: int, event: Event) -> None:
        self.parts[worker], wanted = self.parts[worker].handle(event)
        for out in wanted:
            match out:
                case Send(to=to, message=message):
                    if to == worker:
                        raise Broken(f"a worker has no link to itself: worker={worker}")
                    self.links.setdefault((worker, to), deque()).append(message)
                case Pass(keys=keys, rows=rows):
                    self.truth.operators[worker].passed(keys, rows)
                case FinishedMessage(version=version):
                    self.over[worker] = version
                case Interrogate() | Collect():
                    self.orders[worker].append(out)
                case Take() | Drop():
                    self.truth.operators[worker].ordered(out)

    def check(self) -> None:
        """At the end every row was processed once, each count is right and at the owner by the layout."""
        if self.truth.processed != set(range(len(self.fed))):
            raise Broken(f"rows were lost: rows={sorted(set(range(len(self.fed))) - self.truth.processed)}")
        if self.truth.counts() != dict(Counter(self.fed)):
            raise Broken("counts differ from those without a rescale")
        for worker, operators in self.truth.operators.items():
            held = keys_of(sorted(operators.state))
            if (owner_of(self.layout, held) != worker).any():
                raise Broken(f"a worker holds what is not its own: worker={worker}")


def interleaved(
    strategy: str, seed: int, first: Layout, counts: Sequence[int], rows: int = 60, **more: int
) -> Interleaved:
    """A whole run through layouts."""
    world = Interleaved(strategy, seed, first, **more)
    for new in walk(first, counts)[1:]:
        world.rescale(new, rows)
    world.drain()
    world.check()
    return world


@dataclass
class Lockstep:
    """Steps as the engine runs them: all workers in one phase, commands at the start of a step, bytes between steps."""

    strategy: str
    seed: int
    layout: Layout
    keys: int = 60
    rows_per_step: int = 20
    encode: bool = True

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.truth = Truth()
        self.parts: dict[int, Distributor] = {}
        self.pool = key_pool(self.rng, self.keys)
        self.fed = 0
        self.expected: Counter[int] = Counter()
        self.rounds: list[int] = []
        self.outputs: list[Counter[tuple[int, int]]] = []
        for worker in self.layout.workers:
            self._join(worker)

    def _join(self, worker: int) -> None:
        self.parts[worker] = distributor(self.strategy, worker, self.layout)
        self.truth.operators[worker] = Counting(worker, self.truth)

    @property
    def migrating(self) -> bool:
        """Whether somebody is not done."""
        return any(part.migrating for part in self.parts.values())

    @property
    def left(self) -> int:
        """Keys yet to move."""
        return sum(part.left for part in self.parts.values())

    def step(self, command: Event | None = None) -> None:
        """One step: its outputs are those of a run without a rescale, and every key has one owner."""
        events: dict[int, list[Event]] = {worker: [command] if command else [] for worker in self.parts}
        due: Counter[tuple[int, int]] = Counter()
        for worker in sorted(self.parts):
            keys = [self.rng.choice(self.pool) for _ in range(self.rng.randint(0, self.rows_per_step))]
            for key in keys:
                self.expected[key] += 1
                due[key, self.expected[key]] += 1
            numbers = np.arange(self.fed, self.fed + len(keys))
            self.fed += len(keys)
            events[worker].append(Local(keys=np.array(keys, np.uint64), rows=numbers))
        self.truth.outputs = []
        found, rounds = run_rounds(self.parts, self.truth.operators, events)
        self.parts = {worker: decode(encode(part)) for worker, part in found.items()} if self.encode else found
        self.rounds.append(rounds)
        self.outputs.append(Counter(self.truth.outputs))
        if Counter(self.truth.outputs) != due:
            raise Broken(f"outputs of a step differ: step={len(self.outputs)}")
        if self.truth.counts() != dict(self.expected):
            raise Broken(f"a key is owned by nobody: step={len(self.outputs)}")

    def begin(self, new: Layout) -> None:
        """The step in which a migration begins."""
        for worker in new.workers:
            if worker not in self.parts:
                self._join(worker)
        self.old, self.layout = self.layout, new
        self.step(BeginMessage(layout=new))

    def rescale(self, new: Layout, budget: int) -> int:
        """A whole migration; how many keys moved."""
        self.begin(new)
        self.step()
        leaving = {key for key, part in self._held() if owner_of(new, keys_of([key]))[0] != part}
        self.truth.taken.clear()
        self.step(Enter())
        while self.left:
            self.step(Move(budget=budget))
        self.settle()
        if self.truth.taken != Counter(leaving):
            raise Broken(f"keys moved that need not, or twice: moved={self.truth.taken.total()} least={len(leaving)}")
        return len(leaving)

    def settle(self) -> None:
        """At the end all are done, and who leaves has nothing."""
        if self.migrating:
            raise Broken("nothing is left to move, and the migration is not over")
        for worker in set(self.parts) - set(self.layout.workers):
            if self.truth.operators[worker].state:
                raise Broken(f"a worker left with state: worker={worker}")
            del self.parts[worker], self.truth.operators[worker]
        for key, worker in self._held():
            if owner_of(self.layout, keys_of([key]))[0] != worker:
                raise Broken(f"a worker holds what is not its own: worker={worker}")

    def _held(self) -> list[tuple[int, int]]:
        return [(key, worker) for worker, operators in self.truth.operators.items() for key in operators.state]

    def cancel(self, back: Layout, budget: int) -> None:
        """Turn round, and go on until all is where it was."""
        self.layout = back
        self.step(Cancel(version=back.version))
        while self.left:
            self.step(Move(budget=budget))
        self.settle()
