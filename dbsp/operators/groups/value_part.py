"""What the aggregates over the values of one column have in common that keep these values, each as a row."""

from __future__ import annotations

from dataclasses import dataclass

from dbsp.operators.groups.row_form import RowForm, value_name


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuePart:
    """One aggregate of the values that are not null."""

    name: str
    text: str
    values: RowForm

    def __str__(self) -> str:
        """The aggregate."""
        return f"{self.name} = {self.text}"

    def form(self) -> RowForm:
        """Keys and value."""
        return self.values

    def names(self) -> tuple[str, ...]:
        """The aggregate's name."""
        return (self.name,)

    @property
    def value(self) -> str:
        """The column of the values."""
        return value_name(self.values.columns[0].name)
