"""Base of all operators: frozen values that compute the change of their output from the changes of their inputs.

The executor (`dbsp.steps.segment`) passes the changes of one step and the operator's traces as of the previous step. Batches
that the operator appends to a trace are visible from the next step on. An operator stores nothing itself: it is a pure function.

Invariants:
1. Output and appended batches depend only on (context, state, inputs): no clock, no randomness, no order of arrival.
2. An input may be loose (any order, repeated rows, zero weights), and so may the output.
3. An operator is picklable, and equal to another operator that computes the same.

Source: docs/concepts/circuits.md.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from dbsp.errors import InternalError
from dbsp.operators.monotone_bounds import Bound, MonotoneBounds
from dbsp.steps.timing import Moment, Signal, Waterline
from dbsp.trace.retention import RetentionBound
from dbsp.trace.spine import Spine
from dbsp.zset.batch import Batch
from dbsp.zset.schema import Arrangement, Schema


class Time(enum.Enum):
    """The part of a step's time that an operator's output depends on."""

    NOTHING = "nothing"
    STEPS = "how rows are split into steps"
    WATERLINES = "waterlines"
    CLOCK = "the clock"


NO_TIME = Moment(clock_us=0)


class State(Protocol):
    """The part of the store that a node may read and write in one step."""

    def spine(self, index: int) -> Spine:
        """Return the node's index-th trace as of the previous step."""
        ...

    def retention_bound(self, index: int) -> RetentionBound | None:
        """Return the bound below which a waterline has closed the rows of the trace; None without such a bound.

        Merges may drop a closed row and keep its retraction, or the reverse: an operator ignores rows below the bound.
        """
        ...

    def append(self, index: int, batch: Batch, retention: RetentionBound | None = None) -> None:
        """Append a batch, arranged like the trace, at most once per trace and step; it is visible from the next step on.

        Rows below the retention bound are not needed from then on. If the trace belongs to another node, that node appends the
        same batch.
        """
        ...


@dataclass(frozen=True, slots=True)
class RowFailure:
    """A row that failed: its content as JSON, the reason, its weight, and whether it failed for being late."""

    payload: str
    reason: str
    weight: int
    late: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """The context of one step of an operator; collects failures of rows and signals for later steps.

    `number` is the step's number. `moment` is the step's time, of which the operator reads only the part that `depends_on` names.
    If unneeded columns of the input were not read, `whole` reads its rows with all columns, to report them.
    """

    number: int
    moment: Moment = NO_TIME
    depends_on: Time = Time.NOTHING
    error_policy: str = "dead-letter"
    failures: list[RowFailure] = field(default_factory=list)
    signals: list[Signal] = field(default_factory=list)
    whole: Callable[[], Batch] | None = None

    @property
    def step(self) -> int:
        """Return the number of the step, for an operator that depends on the steps."""
        self._timed(Time.STEPS)
        return self.number

    @property
    def clock_us(self) -> int:
        """Return the value of `now()` in microseconds, for an operator that depends on the clock."""
        return self._timed(Time.CLOCK).clock_us

    @property
    def clock_before_us(self) -> int | None:
        """Return the value of `now()` in the previous step, in microseconds; None if there is none."""
        return self._timed(Time.CLOCK).clock_before_us

    @property
    def waterlines(self) -> tuple[Waterline, ...]:
        """Return the waterlines, for an operator that depends on them."""
        return self._timed(Time.WATERLINES).waterlines

    def _timed(self, needed: Time) -> Moment:
        if self.depends_on is not needed:
            raise InternalError(
                f"an operator reads a part of the time that its depends_on_time does not name: reads={needed.value}"
                f" says={self.depends_on.value}"
            )
        return self.moment

    def fail(self, payload: str, reason: str, weight: int) -> None:
        """Record a failed row, which leaves the stream."""
        self.failures.append(RowFailure(payload, reason, weight))

    def late(self, payload: str, reason: str, weight: int) -> None:
        """Record a late row, which leaves the stream under every error policy."""
        self.failures.append(RowFailure(payload, reason, weight, late=True))

    def signal(self, node: int, kind: str, at_us: int) -> None:
        """Send a signal to the scheduler of later steps."""
        self.signals.append(Signal(node=node, kind=kind, at_us=at_us))

    def waterline(self, node: int) -> Waterline | None:
        """Return the waterline of a watermark's node, or None before the first one."""
        return self._timed(Time.WATERLINES).waterline(node)


OUTPUT = -1
"""The number of an operator's own output, where inputs are counted from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Integral:
    """A trace that equals the sum of all rows of one stream: an input, or the `OUTPUT`.

    Rows with a null in a column of `present` are left out; `only` says that the operator does not need them.
    Equal integrals are stored once, by the node that asks first, and read by all (design record 0013).
    """

    stream: int
    present: tuple[str, ...] = ()
    only: bool = True

    def left_out(self, schema: Schema) -> frozenset[str]:
        """Return the columns of `present` that are nullable in the schema: a null in them keeps a row out."""
        return frozenset(name for name in self.present if schema[name].nullable)


class SignatureParts(Protocol):
    """The parts from which a node's signature is built."""

    @property
    def inputs(self) -> Sequence[str]:
        """Return the signatures of the inputs."""
        ...

    def hashed(self, *parts: str) -> str:
        """Return the hash of these texts."""
        ...

    def text(self, value: Any) -> str:
        """Return the canonical text of a parameter, with watermarks under their signatures."""
        ...

    def table(self, name: str) -> str:
        """Return the signature of a table's rows as they are pushed."""
        ...

    def received(self) -> str:
        """Return the signature of the rows that an exchange brings to the node."""
        ...

    def whole(self, operator: Operator, text: str | None = None) -> str:
        """Return the signature of the node's schemas, its retention bounds, and all fields of the operator, or `text`."""
        ...


class Shows(Protocol):
    """An operator whose first trace determines its output, so that a view of the operator needs no trace of its own."""

    def shown(self, kept: Batch, error_policy: str) -> Batch:
        """Return the arranged output, computed from the rows of the first trace."""
        ...


@dataclass(frozen=True, slots=True)
class AsKept:
    """A `Shows` for a trace that contains the output rows unchanged."""

    def shown(self, kept: Batch, error_policy: str) -> Batch:  # noqa: ARG002 (protocol)
        """Return the rows unchanged."""
        return kept


class TableTime(Protocol):
    """The event time of a table, read from its rows as they were pushed (`dbsp.operators.time.event_time`)."""

    @property
    def table(self) -> str:
        """Return the name of the table."""

    def waterline(self, rows: Batch, context: StepContext) -> int | None:
        """Return the latest time of the rows with a positive weight, minus the lateness; None if no such row has a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkFacts:
    """The column that a waterline bounds from below. `time` is None unless the waterline follows the partitions of a table."""

    column: str
    time: TableTime | None


STATED = ("depends_on_time", "step", "__str__")
"""The members that every operator class must define; other members of `Operator` have a default."""


class Operator(ABC):
    """Base class of the physical nodes: frozen, picklable dataclasses. `str(operator)` describes the operation in a few words.

    The rest of the project asks an operator for its facts, and knows no operator classes. A fact has a default only if
    the default is right for every operator, though perhaps slow. Every operator states the other facts, or its definition fails.
    """

    __slots__ = ()

    depends_on_time: ClassVar[Time]
    """The part of a step's time that decides the output besides the sums of the inputs' rows.

    `StepContext` refuses to return any other part.

    An operator that depends on time never runs in a backfill, which gives the whole past of the inputs in one step.
    """

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Raise `InternalError` for a class that does not state one of the facts in `STATED`."""
        super().__init_subclass__(**keywords)
        unsaid = [
            name for name in STATED if getattr(getattr(cls, name, None), "__isabstractmethod__", not hasattr(cls, name))
        ]
        if unsaid:
            raise InternalError(f"an operator class lacks required members: class={cls.__name__} missing={unsaid}")

    def arrangements(self) -> tuple[Arrangement, ...]:
        """Return the arrangements of the operator's traces, by index; empty for a stateless operator."""
        return ()

    def integrals(self) -> tuple[Integral | None, ...]:
        """Return for each trace the stream that it integrates; None, or no entry, for a trace that is not an integral."""
        return ()

    @abstractmethod
    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:
        """Return the change of the output for the changes of the inputs."""

    @abstractmethod
    def __str__(self) -> str:
        """Return a description of the operation in a few words."""

    def shows(self) -> Shows | None:
        """Return the operator as `Shows` if its first trace determines its output; None otherwise."""
        return None

    def monotone_bounds(self, inputs: Sequence[MonotoneBounds]) -> MonotoneBounds:  # noqa: ARG002 (for others to use)
        """Return bounds below which the output never changes again, given such bounds of the inputs."""
        return {}

    def closing(self, inputs: Sequence[MonotoneBounds]) -> tuple[tuple[str, Bound] | None, ...]:  # noqa: ARG002 (for others to use)
        """Return for each trace a column and the bound below which its rows are never read again; None if unknown."""
        return ()

    def reads_table(self) -> str | None:
        """Return the table whose changes the operator forwards; None for an operator that reads other operators."""
        return None

    def whole_past(self) -> Batch | None:
        """Return the sum of all rows that the operator ever emits, if no input determines it; None otherwise."""
        return None

    def watermark(self) -> WatermarkFacts | None:
        """Return the watermark that the operator's waterline belongs to; None for an operator without a waterline."""
        return None

    def keeps_table(self) -> bool:
        """Return whether the first trace contains the rows of a table by its primary key."""
        return False

    def only_adds(self, inputs: Sequence[bool]) -> bool:  # noqa: ARG002 (for others to use)
        """Return whether no row ever leaves the output, where `inputs` says the same of each input."""
        return False

    def hands_on_rows(self) -> bool:
        """Return whether each output row is an input row, possibly with fewer columns."""
        return False

    def columns_read(self) -> frozenset[str] | None:
        """Return the columns of the input that the operator reads; None for all of them."""
        return None

    def signature(self, given: SignatureParts) -> str:
        """Return the signature of a node with this operator: equal signatures imply equal outputs for equal inputs.

        The default covers all stored fields, so it is right for every operator. An operator whose output does not
        depend on some fields returns a text without them, so that more state survives a change of the circuit.
        """
        return given.whole(self)
