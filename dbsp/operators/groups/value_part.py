"""What the aggregates have in common that keep the values they look at, each as a row."""

from __future__ import annotations

from dataclasses import dataclass

from dbsp.operators.groups.row_form import RowForm, value_name
from dbsp.stored import stored


@stored("ValuePart", "name text values")
@dataclass(frozen=True, slots=True, kw_only=True)
class ValuePart:
    """One aggregate of rows of a group, and the form in which they are kept."""

    name: str
    text: str
    values: RowForm

    def __str__(self) -> str:
        """The aggregate."""
        return f"{self.name} = {self.text}"

    def form(self) -> RowForm:
        """Keys and values."""
        return self.values

    def names(self) -> tuple[str, ...]:
        """The aggregate's name."""
        return (self.name,)

    @property
    def value(self) -> str:
        """The first column of the values: the only one of most aggregates."""
        return value_name(self.values.columns[0].name)
