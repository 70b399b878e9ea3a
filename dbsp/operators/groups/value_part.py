"""Base of the aggregates that store the values they read, each value as a row."""

from __future__ import annotations

from dataclasses import dataclass

from dbsp.operators.groups.row_form import RowForm, value_name
from dbsp.stored import stored


@stored("ValuePart", "name text values")
@dataclass(frozen=True, slots=True, kw_only=True)
class ValuePart:
    """An aggregate over stored rows, with the form in which the rows are stored."""

    name: str
    text: str
    values: RowForm

    def __str__(self) -> str:
        """Return the aggregate as text."""
        return f"{self.name} = {self.text}"

    def form(self) -> RowForm:
        """Return the form of keys and values."""
        return self.values

    def names(self) -> tuple[str, ...]:
        """Return the aggregate's name."""
        return (self.name,)

    @property
    def value(self) -> str:
        """Return the name of the first value column, which is the only one for most aggregates."""
        return value_name(self.values.columns[0].name)
