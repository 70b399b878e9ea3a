"""Add up the figures of a plan's nodes (rows, time, state) over a run, and show the plan as text with these figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from dbsp.plan.plan import Plan
from dbsp.runtime.runtime import StepReport


@dataclass(slots=True)
class NodeTotal:
    """The figures of a node on one worker, over all steps; its state is as of the last step."""

    rows_in: int = 0
    rows_out: int = 0
    seconds: float = 0.0
    state_rows: int = 0
    state_bytes: int = 0


@dataclass(slots=True)
class NodeTotals:
    """The figures of a run, by (node, worker)."""

    steps: int = 0
    by_node: dict[tuple[int, int], NodeTotal] = field(default_factory=dict)

    def add(self, report: StepReport) -> None:
        """Add the figures of a step."""
        self.steps += 1
        for worker in report.workers:
            for node in worker.nodes:
                total = self.by_node.setdefault((node.node, worker.worker), NodeTotal())
                total.rows_in += node.rows_in
                total.rows_out += node.rows_out
                total.seconds += node.seconds
                total.state_rows, total.state_bytes = node.state_rows, node.state_bytes

    def of(self, node: int) -> list[NodeTotal]:
        """Return the node's figures on every worker that ran it."""
        return [total for (number, _), total in sorted(self.by_node.items()) if number == node]


def measured(plan: Plan, totals: NodeTotals) -> str:
    """Return the plan as text, with the figures of every node below it.

    **Shape** the figures of a node are:

    - its rows in and out
    - its time, and the share of all time
    - the busiest worker's share of the rows (for two workers, half is even, and nearly all indicates a hot key)
    - its state: rows, bytes, bytes per row; a shared arrangement counts at the node that owns it

    With several workers, a further line has the figures of each worker.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING})
    >>> with dbsp.open(dbsp.circuit("demo", {"n": t.group_by("k").aggregate(n=dbsp.count())}), workers=2) as run:
    ...     run.push("t", [{"k": "a"}, {"k": "b"}, {"k": "a"}])
    ...     changes = run.step()
    ...     print([line for line in run.explain().splitlines() if "rows" in line][1].split("time")[0].strip())
    rows 3 -> 2
    """
    from dbsp.plan.explain import explain  # noqa: PLC0415 (a cycle: `explain` imports modules that import this one)

    whole = sum(total.seconds for total in totals.by_node.values()) or 1.0
    lines = [f"measured over {totals.steps} steps, {whole:.3f} s in operators"]
    for line in explain(plan).splitlines():
        lines.append(line)
        number = line.strip().partition(" ")[0]
        if number.startswith("#"):
            lines.extend(_figures(totals.of(int(number[1:])), whole))
        elif number.startswith("@"):
            loop, _, node = number[1:].partition(".")
            lines.extend(f"    {text}" for text in _figures(totals.of(plan.loops[int(loop)].number(int(node))), whole))
    return "\n".join(lines)


def _figures(found: list[NodeTotal], whole: float) -> Iterator[str]:
    """Yield a line of figures for a node, and a line by worker if there are several; nothing for a node that never ran."""
    if not found:
        return
    rows, seconds = sum(total.rows_in for total in found), sum(total.seconds for total in found)
    out = sum(total.rows_out for total in found)
    text = f"rows {rows:,} -> {out:,}  time {seconds:.3f} s ({100 * seconds / whole:.0f} %)"
    if len(found) > 1 and rows:
        text += f"  busiest worker {100 * max(total.rows_in for total in found) / rows:.0f} % of rows"
    kept, size = sum(total.state_rows for total in found), sum(total.state_bytes for total in found)
    if kept:
        text += f"  state {kept:,} rows, {size:,} bytes ({size / kept:.0f} a row)"
    yield f"      {text}"
    if len(found) > 1:
        yield f"      by worker: {_by_worker(found)}"


def _by_worker(found: list[NodeTotal]) -> str:
    """Return the rows, the time and the state of each worker, in the order of their numbers."""
    parts = [
        f"in {' / '.join(f'{total.rows_in:,}' for total in found)}",
        f"time {' / '.join(f'{total.seconds:.3f}' for total in found)} s",
    ]
    if any(total.state_rows for total in found):
        parts.append(f"state {' / '.join(f'{total.state_bytes:,}' for total in found)} bytes")
    return "  ".join(parts)
