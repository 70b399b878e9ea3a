"""Apply: a chain of filters and projections over expressions, fused into one operator.

**Law** Linear: apply(a + b) = apply(a) + apply(b), so the change of the output is the chain applied to the change.

A filter does not copy rows; a column is filtered when a later stage reads it. A row on which an expression fails leaves by
the error policy (`dbsp.operators.failures`). A retraction of the row fails in the same way, so both cancel out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbsp.expr.expression import Call, ColumnRef, Expression
from dbsp.expr.outcomes import outcomes
from dbsp.expr.rows import ROW_ERRORS, ColumnReader, Subset
from dbsp.operators.failures import report
from dbsp.operators.monotone_bounds import MonotoneBounds, bound_of
from dbsp.operators.operator import Operator, SignatureParts, State, StepContext, Time
from dbsp.stored import stored
from dbsp.zset.arrays import canonical_floats
from dbsp.zset.batch import Batch
from dbsp.zset.coded import plain
from dbsp.zset.schema import Schema

Weights = npt.NDArray[np.int64]


@stored("Keep", "predicate schema")
@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Filter stage: keep the rows for which the predicate is true."""

    predicate: Expression
    schema: Schema

    def __str__(self) -> str:
        """Return the filter as text."""
        return f"filter {self.predicate}"


@stored("Project", "columns schema")
@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """Projection stage: replace each row by the values of the expressions."""

    columns: tuple[tuple[str, Expression], ...]
    schema: Schema

    def __str__(self) -> str:
        """Return the projection as text."""
        return "select " + ", ".join(_named(name, value) for name, value in self.columns)

    @property
    def is_plain(self) -> bool:
        """Return whether the stage only picks and renames columns."""
        return all(isinstance(value, ColumnRef) for _, value in self.columns)


Stage = Keep | Project


def _named(name: str, value: Expression) -> str:
    return name if isinstance(value, ColumnRef) and value.name == name else f"{name} = {value}"


@dataclass(frozen=True, slots=True, eq=False)
class _Made:
    """The columns that a projection computed, readable by the next stage in the same way as a batch."""

    columns: Mapping[str, pa.Array]
    rows: int
    taken: dict[str, pa.Array] = field(default_factory=dict)

    def column(self, name: str) -> pa.Array:
        """Return a column by name, decoded; the result is cached."""
        if name not in self.taken:
            self.taken[name] = plain(self.columns[name])
        return self.taken[name]

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.rows


@dataclass(slots=True)
class _Flow:
    """The state of a batch between stages; `origin` contains the index of each remaining row in the input, None for all rows."""

    context: StepContext
    source: Batch
    rows: ColumnReader
    weights: Weights
    origin: npt.NDArray[np.int64] | None = None
    reasons: dict[int, str] = field(default_factory=dict)

    def keep(self, mask: npt.NDArray[np.bool_]) -> None:
        """Drop the rows that are not in the mask."""
        positions = np.flatnonzero(mask)
        if len(positions) == len(mask):
            return
        self.rows = Subset(self.rows, pa.array(positions))
        self.weights = self.weights[positions]
        self.origin = positions if self.origin is None else self.origin[positions]

    def fail(self, reasons: Mapping[int, str]) -> None:
        """Record failed rows by their index in the input, and drop them."""
        for row, reason in reasons.items():
            self.reasons[row if self.origin is None else int(self.origin[row])] = reason
        mask = np.ones(len(self.rows), np.bool_)
        mask[list(reasons)] = False
        self.keep(mask)

    def value(self, expression: Expression) -> tuple[pa.Array, dict[int, str]]:
        """Return an expression's column, texts perhaps dictionary-coded, and the error texts of the failed rows."""
        rows = self.rows
        try:
            return expression.held(rows) if isinstance(expression, Call) else expression.evaluate(rows), {}
        except ROW_ERRORS:
            return outcomes(expression, rows)


@stored("Apply", "stages schema")
@dataclass(frozen=True, slots=True, kw_only=True)
class Apply(Operator):
    """Run the stages in order on the changed rows."""

    depends_on_time: ClassVar[Time] = Time.NOTHING
    stages: tuple[Stage, ...]
    schema: Schema

    def __str__(self) -> str:
        """Return the stages as text."""
        return "; ".join(map(str, self.stages))

    def monotone_bounds(self, inputs: Sequence[MonotoneBounds]) -> MonotoneBounds:
        """Return the bounds of the output columns, derived from the input's bounds through the stages."""
        found = dict(inputs[0])
        for stage in self.stages:
            if isinstance(stage, Project):
                bounds = {name: bound_of(value, found) for name, value in stage.columns}
                found = {name: bound for name, bound in bounds.items() if bound is not None}
        return found

    def only_adds(self, inputs: Sequence[bool]) -> bool:
        """Return whether the input only adds rows: each output row follows from one input row."""
        return all(inputs)

    def hands_on_rows(self) -> bool:
        """Return whether no stage computes a column."""
        return not any(_computes(stage) for stage in self.stages)

    def columns_read(self) -> frozenset[str] | None:
        """Return the columns that the stages read up to the first projection; None if no stage projects."""
        found: frozenset[str] = frozenset()
        for stage in self.stages:
            if isinstance(stage, Project):
                return found.union(*(value.columns() for _, value in stage.columns))
            found |= stage.predicate.columns()
        return None

    def signature(self, given: SignatureParts) -> str:
        """Return a signature of the conditions and of the computed columns.

        A filter forwards rows unchanged, and the readers of the node determine which columns are picked.
        """
        stream = given.inputs[0]
        for stage in self.stages:
            if isinstance(stage, Keep):
                stream = given.hashed("keep", given.text(stage.predicate), stream)
            elif _computes(stage):
                stream = given.hashed("project", given.text(stage.columns), stream)
        return stream

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """Return the chain's output for the changed rows."""
        (batch,) = inputs
        return self.applied(context, batch)

    def applied(self, context: StepContext, batch: Batch) -> Batch:
        """Return the rows of a batch after all stages; failed rows are reported to the context."""
        if len(batch) == 0:
            return Batch.empty(self.schema)
        flow = _Flow(context, batch, batch, batch.weight)
        for stage in self.stages:
            if isinstance(stage, Keep):
                _filter(flow, stage)
            else:
                _project(flow, stage)
        report(context, batch, batch.schema.names, batch.weight, flow.reasons)
        columns = tuple(canonical_floats(_held(flow.rows, name)) for name in self.schema.names)
        return Batch(schema=self.schema, columns=columns, weights=flow.weights.reshape(-1, 1))


def _computes(stage: Stage) -> bool:
    """Return whether a stage computes a column, or renames one."""
    return isinstance(stage, Project) and any(value != ColumnRef(name) for name, value in stage.columns)


def _filter(flow: _Flow, stage: Keep) -> None:
    """Keep the rows for which the predicate is true; under policy `null` a failure counts as null, so the row leaves."""
    mask, reasons = flow.value(stage.predicate)
    if reasons and flow.context.error_policy != "null":
        flow.fail(reasons)
        mask = mask.filter(pa.array(_all_but(len(mask), reasons)))
    flow.keep(_true(mask))


def _project(flow: _Flow, stage: Project) -> None:
    """Compute the columns of a projection.

    A row on which an expression fails leaves the stream. Under policy `null` a nullable column gets a null instead.
    """
    made: dict[str, pa.Array] = {}
    lost: dict[int, str] = {}
    for name, expression in stage.columns:
        if isinstance(expression, ColumnRef):
            made[name] = _held(flow.rows, expression.name)
            continue
        made[name], reasons = flow.value(expression)
        if reasons and not (flow.context.error_policy == "null" and stage.schema[name].nullable):
            for row, reason in reasons.items():
                lost.setdefault(row, reason)
    rows = len(flow.rows)
    if lost:
        kept = pa.array(_all_but(rows, lost))
        flow.fail(lost)
        made = {name: column.filter(kept) for name, column in made.items()}
    flow.rows = _Made(made, rows - len(lost))


def _held(rows: ColumnReader, name: str) -> pa.Array:
    """Return a column in its stored form, with texts perhaps dictionary-coded."""
    match rows:
        case Batch():
            return rows.held_column(name)
        case _Made():
            return rows.columns[name]
        case Subset() if name not in rows.taken:
            return _held(rows.rows, name).take(rows.positions)
    return rows.column(name)


def _all_but(rows: int, failed: Mapping[int, str]) -> npt.NDArray[np.bool_]:
    mask = np.ones(rows, np.bool_)
    mask[list(failed)] = False
    return mask


def _true(values: pa.Array) -> npt.NDArray[np.bool_]:
    """Return the mask of the true values of a boolean column; nulls count as false."""
    filled: npt.NDArray[np.bool_] = values.fill_null(False).to_numpy(zero_copy_only=False)
    return filled
