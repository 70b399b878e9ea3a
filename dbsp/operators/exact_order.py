"""Exact order of rows that arrive sorted by order code: only rows with equal codes are compared by their columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dbsp.trace.first_rows import FirstRows
from dbsp.zset.arrays import from_values
from dbsp.zset.batch import Batch
from dbsp.zset.batch_rows import sort_rows
from dbsp.zset.schema import INT64, Column, OrderBy, Schema

Positions = npt.NDArray[np.int64]
Weights = npt.NDArray[np.int64]

_GROUP = "__group__"


def sorted_within(group: Positions, rows: Batch, order: Sequence[OrderBy]) -> Positions:
    """Return the permutation that sorts rows within their groups by `order`, then by all columns."""
    schema = Schema((Column(_GROUP, INT64, nullable=False), *rows.schema.columns))
    numbered = Batch(schema=schema, columns=(from_values(group, INT64), *rows.columns), weights=rows.weights)
    return sort_rows(numbered, (OrderBy(_GROUP), *order))


def settled(first_rows: FirstRows, weights: Weights, order: Sequence[OrderBy]) -> Positions:
    """Return the indices of the rows of positive weight, in exact order within their queries.

    **Cost** A comparison sort of only those rows that share their query and order code with another row.
    """
    positions = np.flatnonzero(weights > 0)
    query, code = first_rows.query.take(positions), first_rows.code.take(positions)
    tied = (query[1:] == query[:-1]) & (code[1:] == code[:-1])
    if not tied.any():
        return positions
    crowded = np.zeros(len(positions), np.bool_)
    crowded[1:] = tied
    crowded[:-1] |= tied
    members = np.flatnonzero(crowded)
    run = np.concatenate([[0], np.cumsum(~tied)])[members]
    held = positions[members]
    positions[members] = held[sorted_within(run, first_rows.take(held, weights.take(held)), order)]
    return positions
