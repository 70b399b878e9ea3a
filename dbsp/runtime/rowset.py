"""Rows with weights, as a Python program reads them: a view, or a step's change of a view."""

from __future__ import annotations

import html
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dbsp.diagnostics.source_lines import located, user_line
from dbsp.errors import CircuitError, ConfigError
from dbsp.expr.answering import Answering
from dbsp.runtime.bags import bag
from dbsp.zset.batch import Batch

SHOWN = 20
"""The number of rows that a printed view or change shows."""


@dataclass(frozen=True, slots=True, eq=False)
class Rowset(Answering):
    """Rows with weights, for reading: a view, or the change of a view in one step.

    A weight is the number of times that a row is present. In a change, a negative weight is the number of times that a row was
    removed. Methods that return rows without weights repeat each row by its weight, and raise an error if a row was removed.
    `to_rows()` and `weight=True` also return removed rows.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.INT64, "name": dbsp.STRING}, primary_key="k")
    >>> with dbsp.open(dbsp.circuit("demo", {"t": t})) as run:
    ...     run.push("t", [{"k": 1, "name": "a"}, {"k": 2, "name": "b"}])
    ...     _ = run.step()
    ...     run.push("t", [{"k": 1, "name": "c"}])
    ...     change = run.step()["t"]
    ...     print(change.to_rows())
    ...     print(run.view("t") == [{"k": 1, "name": "c"}, {"k": 2, "name": "b"}])
    [((1, 'a'), -1), ((1, 'c'), 1)]
    True
    """

    _CALLED: ClassVar[str] = "a Rowset"
    _OTHERS: ClassVar[tuple[str, ...]] = ("rows",)

    batch: Batch

    def __len__(self) -> int:
        """Return the number of different rows."""
        return len(self.batch)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Iterate over the rows as dicts, each repeated by its weight; see `to_pylist`."""
        return iter(self.to_pylist())

    def __eq__(self, other: object) -> bool:
        """Compare with another `Rowset`, an Arrow table or a list of dicts: equal if the rows and weights are, in any order."""
        if not isinstance(other, Rowset | list | pa.Table):
            return NotImplemented
        return bag(self.batch) == bag(other.batch if isinstance(other, Rowset) else other)

    __hash__ = None  # type: ignore[assignment]  # it is a collection

    def to_arrow(self, weight: bool = False) -> pa.Table:
        """Return an Arrow table; with `weight`, the weights are the last column, else each row is repeated by its weight.

        **Errors** `CircuitError` without `weight` for a change that removes rows.
        """
        if weight:
            return self.batch.to_arrow(weight_column="weight")
        weights = self.batch.weight
        if len(weights) and weights.min() < 0:
            with located(user_line()):
                gone = int((weights < 0).sum())
                hint = "write to_rows() or weight=True; of a change, run.view(name) has the rows that are there now"
                raise CircuitError(f"rows with negative weights, which plain rows do not show: rows={gone}", hint)
        return self.batch.take(np.repeat(np.arange(len(self.batch)), weights)).to_arrow(weight_column=None)

    def to_pylist(self, weight: bool = False) -> list[dict[str, Any]]:
        """Return the rows as dicts; `weight` and errors as in `to_arrow`."""
        rows: list[dict[str, Any]] = self.to_arrow(weight).to_pylist()
        return rows

    def to_pandas(self, weight: bool = False) -> Any:
        """Return a pandas data frame; `weight` and errors as in `to_arrow`.

        **Errors** `ConfigError` where pandas is not installed.
        """
        _needed("pandas")
        return self.to_arrow(weight).to_pandas()

    def to_polars(self, weight: bool = False) -> Any:
        """Return a Polars data frame; `weight` and errors as in `to_arrow`.

        **Errors** `ConfigError` where Polars is not installed.
        """
        return _needed("polars").from_arrow(self.to_arrow(weight))

    def to_rows(self) -> list[tuple[tuple[Any, ...], int]]:
        """Return (row, weight) pairs, sorted: for tests and documents."""
        return sorted(self.batch.to_rows(), key=repr)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows as an Arrow stream for its readers, such as DuckDB, Polars and pandas; errors as in `to_arrow`."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        """Return the schema and the first rows as text."""
        found = self.to_rows()
        shown = "\n".join(f"{weight:+d} {row}" for row, weight in found[:SHOWN])
        return f"{self.batch.schema}\n{shown}" + (f"\n… {len(found)} rows" if len(found) > SHOWN else "")

    def _repr_html_(self) -> str:
        """Return an HTML table of the first rows with their weights, for notebooks."""
        found = self.to_rows()
        head = "".join(f"<th>{html.escape(name)}</th>" for name in ("weight", *self.batch.schema.names))
        lines = "".join(
            "<tr>" + "".join(f"<td>{html.escape(str(each))}</td>" for each in (f"{weight:+d}", *row)) + "</tr>"
            for row, weight in found[:SHOWN]
        )
        more = f"<caption>{SHOWN} of {len(found)} rows</caption>" if len(found) > SHOWN else ""
        return f"<table>{more}<thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"


def _needed(name: str) -> Any:
    """Import a library that dbsp does not require; raise `ConfigError` if it is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise ConfigError(f"{name} is not installed", f"pip install {name}, or use to_arrow()") from None
