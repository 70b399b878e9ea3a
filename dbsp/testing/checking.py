"""Random stories of a circuit against an oracle: splits, order, deletions, restarts and workers must not change a view."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import pyarrow as pa

from dbsp.algebra.table import Table
from dbsp.circuit.circuit import Circuit
from dbsp.errors import CircuitError, ConfigError
from dbsp.logs import INSERT
from dbsp.runtime.bags import bag
from dbsp.runtime.pushed import rows_to_batch
from dbsp.runtime.session import Run, open_run
from dbsp.testing.comparing import Difference, difference

Oracle: TypeAlias = str | Callable[[Mapping[str, pa.Table]], Any]
"""The expected view: a SELECT for DuckDB over the tables by name, or a function of the tables that returns its rows."""
Row: TypeAlias = dict[str, Any]
SEEDS = 20
STEPS_MAX = 6
WORKERS_MAX = 3


def check(
    circuit: Circuit, rows: Mapping[str, Any], views: Mapping[str, Oracle], *, seeds: Iterable[int] | None = None
) -> None:
    """Play random stories of a circuit, and compare its views with the results of oracles after every step.

    **Law** A view depends on the current rows alone. It does not depend on steps and order, deletions and repeated
    insertions, the number of workers, or a return to a checkpoint.

    **Shape** `rows` by table, in every form that `Run.push` takes; `views` maps each view to its oracle. A seed is a
    story; 20 are played unless `seeds` names others, or `pytest --dbsp-seeds=100` asks for more
    (`dbsp.testing.plugin`).

    **Errors** `AssertionError` with the view, the rows that differ, the story so far, and its seed. A `CircuitError`
    names a table or view that the circuit lacks. Circuits over `dbsp.now()` or watermarks cannot be checked, because
    their views depend on when rows arrive.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"id": dbsp.INT64, "euros": dbsp.INT64}, primary_key="id")
    >>> total = dbsp.circuit("demo", {"total": t.aggregate(total=dbsp.sum("euros"))})
    >>> check(total, {"t": [{"id": n, "euros": n} for n in range(9)]}, {"total": "select sum(euros) as total from t"}, seeds=[1])
    >>> check(total, {"t": [{"id": 1, "euros": 5}]}, {"total": lambda tables: [{"total": 6}]}, seeds=[1])
    Traceback (most recent call last):
    AssertionError: the sum of the changes of view 'total' of seed 1, step 0: - is missing, + is too many
    - {'total': 6}
    + {'total': None}
    play it again by check(…, seeds=[1]); the story so far:
      1 worker
      step
    """
    for name in {*views} - {name for name, _ in circuit.views}:
        raise CircuitError(f"no such view: view={name} views={[each for each, _ in circuit.views]}")
    given = {name: _listed(circuit, name, each) for name, each in rows.items()}
    for seed in range(DEFAULT["seeds"]) if seeds is None else seeds:
        _Play(circuit, given, views, seed).play()


DEFAULT = {"seeds": SEEDS}
"""How many seeds are played; pytest's option changes it."""


def _listed(circuit: Circuit, name: str, rows: Any) -> tuple[Table, list[Row]]:
    table = next((each for each in circuit.tables if each.name == name), None)
    if table is None:
        raise CircuitError(f"no such table: table={name} tables={[each.name for each in circuit.tables]}")
    listed: list[Row] = rows_to_batch(table, rows, INSERT).to_arrow(weight_column=None).to_pylist()
    return table, listed


class _Play:
    """A random story under way: the rows to push, the current rows of each table, and the sums of the views' changes."""

    def __init__(
        self, circuit: Circuit, given: Mapping[str, tuple[Table, list[Row]]], views: Mapping[str, Oracle], seed: int
    ) -> None:
        self.seed, self.views, self.circuit = seed, views, circuit
        self.tables = {table.name: table for table in circuit.tables}
        self.random = random.Random(seed)  # noqa: S311 - a story, not a secret
        self.waiting = [(name, row) for name, (_, rows) in given.items() for row in rows]
        self.random.shuffle(self.waiting)
        self.there: dict[str, list[Row]] = {name: [] for name in self.tables}
        self.story: list[str] = []
        self.sums: dict[str, Counter[Any]] = {name: Counter() for name in views}

    def play(self) -> None:
        """Play the story to its end, and compare the views after every step."""
        workers = self.random.randint(1, WORKERS_MAX)
        self.story.append(f"{workers} worker{'s' * (workers > 1)}")
        with open_run(self.circuit, workers) as run:
            steps = self.random.randint(1, STEPS_MAX)
            for step in range(steps):
                share = len(self.waiting) if step == steps - 1 else self.random.randint(0, len(self.waiting))
                self._changed(run, [self.waiting.pop() for _ in range(share)])
                self._compared(run, step)
                self._between(run)

    def _changed(self, run: Run, rows: list[tuple[str, Row]]) -> None:
        """Push rows, and delete a fifth of the current ones; half of the deleted rows are pushed again later."""
        for name, table in self.tables.items():
            if not table.append_only:
                gone = [row for row in self.there[name] if self.random.random() < 0.2]  # noqa: PLR2004 - a fifth
                self._delete(run, name, gone)
                self.waiting += [(name, row) for row in gone if self.random.random() < 0.5]  # noqa: PLR2004 - half of them
            self._push(run, name, [row for other, row in rows if other == name])
        self.story.append("step")

    def _delete(self, run: Run, name: str, rows: list[Row]) -> None:
        if rows:
            key = self.tables[name].primary_key
            run.delete(name, [{column: row[column] for column in key} for row in rows] if key else rows)
            self.story.append(f"delete {name} {rows}")
            for row in rows:
                self.there[name].remove(row)

    def _push(self, run: Run, name: str, rows: list[Row]) -> None:
        if not rows:
            return
        run.push(name, rows)
        self.story.append(f"push {name} {rows}")
        table = self.tables[name]
        if not table.primary_key:
            self.there[name] += rows
            return
        by_key = {tuple(row[column] for column in table.primary_key): row for row in self.there[name]}
        for row in rows:
            key = tuple(row[column] for column in table.primary_key)
            by_key[key] = by_key.get(key, row) if table.append_only else row
        self.there[name] = list(by_key.values())

    def _compared(self, run: Run, step: int) -> None:
        changes = run.step()
        tables = {
            name: pa.Table.from_pylist(self.there[name], schema=table.schema.to_arrow())
            for name, table in self.tables.items()
        }
        for view, oracle in self.views.items():
            for row, weight in bag(changes[view].batch).items():
                self.sums[view][row] += weight
            wanted = _answer(oracle, tables)
            self._refuse(view, step, "the sum of the changes of view", difference(self.sums[view], wanted))
            if view in self.circuit.materialized:
                self._refuse(view, step, "view", difference(run.view(view), wanted))

    def _refuse(self, view: str, step: int, what: str, differing: Difference) -> None:
        if differing:
            head = f"{what} {view!r} of seed {self.seed}, step {step}: - is missing, + is too many"
            again = f"play it again by check(…, seeds=[{self.seed}]); the story so far:"
            raise AssertionError("\n".join([head, *differing.lines(), again, *(f"  {each}" for each in self.story)]))

    def _between(self, run: Run) -> None:
        """Restart, rescale, checkpoint or do nothing between two steps; none of these may change a view."""
        match self.random.randrange(6):
            case 0:
                run.restart()
                self.story.append("restart")
            case 1:
                workers = self.random.randint(1, WORKERS_MAX)
                run.rescale(workers)
                self.story.append(f"rescale {workers}")
            case 2:
                run.checkpoint()
                self.story.append("checkpoint")
            case _:
                pass


def _answer(oracle: Oracle, tables: Mapping[str, pa.Table]) -> Any:
    if not isinstance(oracle, str):
        return oracle(tables)
    try:
        import duckdb  # noqa: PLC0415 - an extra: a function is an oracle too
    except ModuleNotFoundError:
        raise ConfigError("an oracle in SQL needs DuckDB", "pip install duckdb, or give a function") from None
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return connection.sql(oracle).to_arrow_table()
