"""Scripted stories of a circuit: given rows, when others are pushed or deleted, then a view equals these rows."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from dbsp.circuit.circuit import Circuit
from dbsp.runtime.rowset import Rowset
from dbsp.runtime.session import open_run
from dbsp.testing.comparing import difference


class Story:
    """A run that a test drives step by step; made by `given`."""

    def __init__(self, circuit: Circuit, workers: int = 1) -> None:
        """Open a run without rows."""
        self.run = open_run(circuit, workers)
        self._changes: dict[str, Rowset] = {}

    def __enter__(self) -> Self:
        """Return the story itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the run."""
        self.run.close()

    def when(
        self,
        pushed: Mapping[str, Any] | None = None,
        deleted: Mapping[str, Any] | None = None,
        *,
        clock: datetime.datetime | None = None,
    ) -> Self:
        """Push and delete rows, by table, and run one step; `clock` is the value of `dbsp.now()` in this step."""
        for table, rows in (deleted or {}).items():
            self.run.delete(table, rows)
        for table, rows in (pushed or {}).items():
            self.run.push(table, rows)
        self._changes = self.run.step(clock=clock)
        return self

    def then(self, view: str, rows: Any) -> Self:
        """Compare a view with its expected rows, in any order.

        **Errors** `AssertionError` with the rows that differ.
        """
        _same(f"view {view!r}", self.run.view(view), rows)
        return self

    def then_changed(self, view: str, *, added: Any = (), removed: Any = ()) -> Self:
        """Compare the last step's changes of a view with the expected insertions and deletions.

        **Errors** `AssertionError` with the rows that differ.
        """
        weighted = self._changes[view].to_pylist(weight=True)
        for what, sign, wanted in (("added to", 1, added), ("removed from", -1, removed)):
            found = [
                {name: value for name, value in row.items() if name != "weight"}
                for row in weighted
                for _ in range(max(sign * row["weight"], 0))
            ]
            _same(f"the rows {what} view {view!r} in the last step", found, wanted)
        return self


def _same(what: str, found: Any, wanted: Any) -> None:
    differing = difference(found, wanted)
    if differing:
        raise AssertionError("\n".join([f"{what}: - is missing, + is too many", *differing.lines()]))


def given(circuit: Circuit, rows: Mapping[str, Any] | None = None, *, workers: int = 1) -> Story:
    """Begin a story: a run of the circuit in memory, whose first step reads these rows by table.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"id": dbsp.INT64, "shop": dbsp.STRING}, primary_key="id")
    >>> counts = dbsp.circuit("demo", {"counts": t.group_by("shop").aggregate(n=dbsp.count())})
    >>> with given(counts, {"t": [{"id": 1, "shop": "a"}, {"id": 2, "shop": "a"}]}) as story:
    ...     _ = story.then("counts", [{"shop": "a", "n": 2}])
    ...     _ = story.when(deleted={"t": [{"id": 1}]})
    ...     _ = story.then_changed("counts", added=[{"shop": "a", "n": 1}], removed=[{"shop": "a", "n": 2}])
    """
    return Story(circuit, workers).when(rows)
