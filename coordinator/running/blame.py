"""Find the input offsets of rows that failed, for nodes that read the rows of a table unchanged.

A node sees rows without their offsets, so only their content is known. If just projections and filters are between a
table and the node, the rows of the step's ranges with that content are the failed ones. A row that was joined or
computed before it failed has no single place in an input, so no place is returned. The module runs only after a step
has failed, so it may read the step's input again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from dbsp.coordinator.decisions.states import LocatedRow
from dbsp.errors import RowsError
from dbsp.logs import DELETE, Changes, InputLog, StepRecord
from dbsp.logs.replays import replayed_changes
from dbsp.operators.failures import payload_of
from dbsp.plan.nodes import PlanNode
from dbsp.plan.plan import Plan

Locate = Callable[[StepRecord, RowsError], tuple[LocatedRow, ...]]


def unlocated(_record: StepRecord, error: RowsError) -> tuple[LocatedRow, ...]:
    """Return the failed rows without input positions."""
    return tuple(
        LocatedRow(table="", partition=-1, offset=-1, reason=reason, payload=payload)
        for payload, reason, _ in error.rows
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Locator:
    """The search for failed rows in the input log; callable as `Parts.locate`."""

    plan: Plan
    inputs: InputLog

    def __call__(self, record: StepRecord, error: RowsError) -> tuple[LocatedRow, ...]:
        """Return the failed rows, with their input positions where they have one.

        **Cost** reads and decodes the ranges of one table, a Python loop over their rows.
        """
        table = self.table_of(error.node)
        places = self._places(record, table, error) if table is not None else {}
        return tuple(_failed(table, places.get(payload), payload, reason) for payload, reason, _ in error.rows)

    def table_of(self, number: int) -> str | None:
        """Return the table whose rows the node reads unchanged; None if it reads anything else."""
        node = self.plan.nodes[number]
        while (table := node.operator.reads_table()) is None:
            before = self._before(node)
            if before is None or (node.id != number and not node.operator.hands_on_rows()):
                return None
            node = before
        return table

    def _before(self, node: PlanNode) -> PlanNode | None:
        """Return the single input of a node, across an exchange if needed; None if there are several."""
        spec = self.plan.arrivals.get(node.id)
        if spec is not None:
            return self.plan.nodes[spec.sender]
        return self.plan.nodes[node.inputs[0]] if len(node.inputs) == 1 else None

    def _places(self, record: StepRecord, table: str, error: RowsError) -> Mapping[str, tuple[int, int]]:
        """Return (partition, offset) of the newest row of the step for each payload."""
        wanted = {payload for payload, _, _ in error.rows}
        names = list(json.loads(error.rows[0][0])) if error.rows else []
        found: dict[str, tuple[int, int]] = {}
        ranges = [range_ for range_ in record.ranges if range_.table == table]
        changes = [change for range_ in ranges for change in self.inputs.read(range_, record.step)]
        changes += replayed_changes(record.commands, {each.name: each for each in self.plan.tables})
        for change in changes:
            for payload, offset in _payloads(change, names) if change.table == table else ():
                if payload in wanted:
                    found[payload] = (change.partition, offset)
        return found


def _payloads(change: Changes, names: list[str]) -> Iterator[tuple[str, int]]:
    """Yield each inserted row in the form in which nodes report failed rows, with its offset."""
    columns = [change.batch.column(name).to_pylist() for name in names]
    for row, (operation, offset) in enumerate(zip(change.operations.tolist(), change.offsets.tolist(), strict=True)):
        if operation != DELETE:
            values = {name: column[row] for name, column in zip(names, columns, strict=True)}
            yield payload_of(values), offset


def _failed(table: str | None, place: tuple[int, int] | None, payload: str, reason: str) -> LocatedRow:
    if table is None or place is None:
        return LocatedRow(table="", partition=-1, offset=-1, reason=reason, payload=payload)
    return LocatedRow(table=table, partition=place[0], offset=place[1], reason=reason, payload=payload)
