"""Aggregates over distinct values: SQL's `sum(distinct x)`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dbsp.aggregates.kind import AggregateCall, AggregateKind, Argument, Asked
from dbsp.operators.groups.row_form import value_name
from dbsp.operators.groups.unique_part import UniquePart
from dbsp.stored import stored
from dbsp.zset.schema import Column


@stored("Unique", "of")
@dataclass(frozen=True, slots=True)
class Unique:
    """A kind that leaves nulls out, applied to the distinct values of its argument."""

    of: AggregateKind
    keeps_nulls = False

    def result(self, name: str, arguments: tuple[Argument, ...]) -> Column:
        """Return the inner kind's result."""
        return self.of.result(name, arguments)

    def add(self, call: AggregateCall, asked: Asked) -> None:
        """Request a part that stores the distinct values, around the part that the inner kind requests."""
        values = asked.row_form(call, present=True)
        inner = Asked(keys=asked.keys, rows=values.schema, result=asked.result)
        columns = tuple(map(value_name, call.columns))
        self.of.add(replace(call, kind=self.of, columns=columns, where=None), inner)
        linear, others = inner.parts()
        asked.part(UniquePart(values=values, of=others[0] if others else linear))

    def sql(self, arguments: Sequence[str]) -> str:
        """Return the call in SQL."""
        function, bracket, rest = self.of.sql(arguments).partition("(")
        return f"{function}{bracket}distinct {rest}"
