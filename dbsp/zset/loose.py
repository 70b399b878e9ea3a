"""Loose batches of rows from outside, whose nulls nobody has checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dbsp.zset.batch import Batch
from dbsp.zset.schema import Column, Schema


def loose_batch(schema: Schema, columns: Sequence[Any]) -> Batch:
    """Return a loose batch of weights 1 that may hold nulls where the schema forbids them, for deletes by key."""
    relaxed = Batch.of(Schema(tuple(Column(column.name, column.type) for column in schema)), columns)
    return Batch(schema=schema, columns=relaxed.held, weights=relaxed.weights)
