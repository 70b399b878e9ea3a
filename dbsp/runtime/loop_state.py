"""Carry a worker's data from task to task while loops run (the loop state), and use it after the loops.

The loop state has batches under (kind, number, index among several). The kinds are:

    held     rows from an exchange of the outer plan, which wait for the segment after the loop
    trace    runs that the loop added to a trace in this step, merged so that their lengths double
    pending  rows that were sent back and are due in a later iteration, by iteration
    return   rows to be sent back that were made before the last segment of the body
    left     rows of a view, from one turn

The loop state is sent in the worker's parcel to itself, so that a task that runs again gets the same loop state.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from dbsp.logs import DeadLetter
from dbsp.operators.iterations.histories import ITERATION
from dbsp.plan.plan import Plan
from dbsp.steps.exchange import Carried, Slot
from dbsp.store import StepTransaction
from dbsp.zset.batch import Batch, concat
from dbsp.zset.merge import merge

HELD, TRACE, PENDING, RETURN, LEFT = "held", "trace", "pending", "return", "left"


def runs_of(loop_state: Mapping[Slot, Batch], trace: int) -> list[tuple[Slot, Batch]]:
    """Return the runs of a trace, longest first."""
    found: list[tuple[Slot, Batch]] = []
    while (batch := loop_state.get((TRACE, trace, len(found)))) is not None:
        found.append(((TRACE, trace, len(found)), batch))
    return found


def after_loops(plan: Plan, depth: int, carried: Carried) -> tuple[Carried, dict[int, Batch]]:
    """Return the carried data after the loops (dead letters added up, runs of traces), and the rows of the exchanges."""
    found = {slot[1]: batch for slot, batch in carried.loop_state.items() if slot[0] == HELD}
    for loop in plan.loops_after(depth):
        for inner, outer in loop.leaves:
            turns = sorted(slot for slot in carried.loop_state if slot[:2] == (LEFT, inner))
            schema = next(spec.schema for spec in plan.exchanges if spec.id == outer)
            rows = [carried.loop_state[slot].project(schema.names) for slot in turns]
            if rows:
                found[outer] = concat(rows, schema)
    traces = {slot: batch for slot, batch in carried.loop_state.items() if slot[0] == TRACE}
    rest = replace(carried, dead=_netted(carried.dead), loop_state=traces)
    return rest, found


def flush(plan: Plan, depth: int, loop_state: Mapping[Slot, Batch], transaction: StepTransaction) -> None:
    """Append the rows that the loops added in this step to their traces."""
    for loop in plan.loops_after(depth):
        for trace in loop.body.all_traces():
            runs = [batch for _, batch in runs_of(loop_state, trace.id)]
            whole = runs.pop() if runs else None
            while runs and whole is not None:
                whole = merge(runs.pop(), whole)
            if whole is not None and len(whole):
                transaction.append(trace, whole)


def _netted(letters: Sequence[DeadLetter]) -> tuple[DeadLetter, ...]:
    """Add up the failures of a loop's rows over the iterations; return all others unchanged."""
    sums: Counter[DeadLetter] = Counter()
    for letter in letters:
        plain = replace(letter, payload=without_round(letter.payload), weight=0)
        sums[plain] += letter.weight
    if all(f'"{ITERATION}"' not in letter.payload for letter in letters):
        return tuple(letters)
    return tuple(replace(letter, weight=weight) for letter, weight in sums.items() if weight)


def without_round(payload: str) -> str:
    """Return a row's text without its iteration."""
    if f'"{ITERATION}"' not in payload:
        return payload
    row = json.loads(payload)
    return json.dumps({name: value for name, value in row.items() if name != ITERATION})
