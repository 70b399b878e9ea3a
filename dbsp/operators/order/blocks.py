"""Blocks: partitions in their order, cut into ranges of some hundred rows, each stored as its summary.

**Law** the blocks of a partition are consecutive ranges of order codes, from the least code to the greatest. Each block has the
summary of the rows in it. A block without rows may be missing: the block before it then reaches as far as the next. A partition
that was never longer than one block has no stored block at all.

**State** a row per block, with its sums and values. **Cost** to read the blocks of a partition: a row per block.

A block that grows to twice `block_rows` is cut; rows that tie in their order code stay together. Blocks are never joined again;
an empty block is removed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dbsp.operators.groups.part import of_same_keys
from dbsp.operators.order.summaries import Summaries, Summing
from dbsp.operators.order.window_places import I64, U64, Mask, in_order
from dbsp.trace.neighbours import FIRST, LAST
from dbsp.trace.spine import Spine
from dbsp.zset.arrays import from_values, value_view
from dbsp.zset.batch import Batch, arrange, concat
from dbsp.zset.kernels import expand_ranges
from dbsp.zset.kernels.ranges import cut_ranges
from dbsp.zset.runs import begins, lengths
from dbsp.zset.schema import UINT64, Arrangement, Column, OrderBy, Schema

BLOCK_ROWS, BLOCK_SLOTS = 256, 256


def block_rows(slots: int) -> int:
    """Return the number of rows of a new block whose summary has `slots` sums.

    The number grows with the sums, so that all blocks together need less space than the rows.
    """
    return BLOCK_ROWS * (1 + slots // BLOCK_SLOTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """The stored blocks of some partitions: entries sorted by partition and start."""

    partitions: Batch
    part: I64
    start: U64
    rows: Batch
    summaries: Summaries

    @property
    def divided(self) -> Mask:
        """Return the mask of the partitions that have stored blocks."""
        return np.bincount(self.part, minlength=len(self.partitions)) > 0

    def around(self, part: I64, codes: U64) -> tuple[U64, U64]:
        """Return the first and the last code of the block that contains each position."""
        first, behind, end = self._entries(part, codes)
        padded = np.append(self.start, np.uint64(0))
        low = np.where(behind > first, padded[np.maximum(behind, 1) - 1], FIRST)
        return low, np.where(behind < end, padded[behind] - np.uint64(1), LAST)

    def number(self, part: I64, codes: U64) -> I64:
        """Return the number of the block that contains each position; later blocks have greater numbers."""
        return self._entries(part, codes)[1] + part

    @property
    def numbers(self) -> I64:
        """Return the block numbers of the entries."""
        return np.arange(1, len(self.part) + 1) + self.part

    def _entries(self, part: I64, codes: U64) -> tuple[I64, I64, I64]:
        """Return three entry indices for each position.

        They are the first entry of its partition, the first entry that starts after the position, and the partition's end.
        """
        first, end = self.part.searchsorted(part, "left"), self.part.searchsorted(part, "right")
        low, behind = first.copy(), end.copy()
        cut_ranges(low, behind, np.zeros(len(codes), np.uint64), np.ascontiguousarray(codes), self.start)
        return first, behind, end

    def before(self, part: I64, low: U64) -> tuple[I64, I64]:
        """Return a (stretch, entry) pair for each entry before a stretch; stretches begin at the start of a block."""
        first, behind, _ = self._entries(part, low)
        return expand_ranges(first, np.maximum(behind - 1, first))

    def behind(self, part: I64, high: U64) -> tuple[I64, I64]:
        """Return a (stretch, entry) pair for each entry after a stretch; stretches end at the end of a block."""
        _, behind, end = self._entries(part, high)
        return expand_ranges(behind, end)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """The new blocks into which the rows of some blocks are cut: partition and start of each, and the piece of each row."""

    part: I64
    start: U64
    of_rows: I64


def cut(blocks: Blocks, part: I64, codes: U64, rows: int) -> Pieces:
    """Cut whole blocks into blocks that begin with `rows` rows.

    `part` and `codes` are the partition and the code of each row, sorted by both.
    """
    number, size = blocks.number(part, codes), len(part)
    at = np.arange(size)
    opens = begins(number)
    fresh = begins(number, codes)
    start = np.maximum.accumulate(np.where(opens, at, 0))
    tied = np.maximum.accumulate(np.where(fresh, at, 0))
    length = lengths(np.flatnonzero(opens), size)[np.cumsum(opens) - 1]
    piece = np.where(length >= 2 * rows, (tied - start) // rows, 0)
    cuts = begins(number, piece)
    first = np.flatnonzero(cuts)
    inner, outer = codes[first], blocks.around(part[first], codes[first])[0]
    return Pieces(part=part[first], start=np.where(opens[first], outer, inner), of_rows=np.cumsum(cuts) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlocksChange:
    """A change of blocks: the mask of the replaced entries, and the blocks that replace them."""

    blocks: Blocks
    touched: Mask
    part: I64
    start: U64
    summaries: Summaries


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTrace:
    """The stored form of blocks: rows by partition and start, with weight 1 and the sums as further weights."""

    partition: Schema
    summing: Summing

    def arrangement(self) -> Arrangement:
        """Return the arrangement by partition, then by the start."""
        names = [self._free(f"__value_{at}") for at in range(len(self.summing.types))]
        values = (Column(name, type_) for name, type_ in zip(names, self.summing.types, strict=True))
        start = Column(self._free("__start"), UINT64, nullable=False)
        return Arrangement(
            schema=Schema((*self.partition.columns, start, *values)), key=self.partition.names,
            order=(OrderBy(start.name),), weights=1 + self.summing.slots,
        )  # fmt: skip

    def _free(self, name: str) -> str:
        """Return a name that no column of the partition has."""
        while name in self.partition:
            name += "_"
        return name

    def read(self, spine: Spine, partitions: Batch) -> Blocks:
        """Read the blocks of some partitions, which are arranged by their key."""
        count, arrangement = len(partitions), self.arrangement()
        part, rows = np.zeros(0, np.int64), Batch.empty(arrangement.schema, arrangement.weights)
        if spine.rows:
            ranges = spine.ranges(partitions.words[0], np.full(count, FIRST), np.full(count, LAST))
            part, rows = in_order(*of_same_keys(partitions, *ranges), arrangement.order)
        first = len(self.partition)
        summaries = Summaries(sums=rows.weights[:, 1:], values=rows.columns[first + 1 :])
        start = value_view(rows.columns[first]).astype(np.uint64)
        return Blocks(partitions=partitions, part=part, start=start, rows=rows, summaries=summaries)

    def needless(self, blocks: Blocks, part: I64) -> bool:
        """Return whether these partitions have no blocks and need none, given the partition of each of their rows."""
        return not len(blocks.part) and int(np.bincount(part, minlength=1).max()) < 2 * block_rows(self.summing.slots)

    def change(self, blocks: Blocks, touched: I64, part: I64, codes: U64, rows: Batch) -> BlocksChange:
        """Return the change of the touched blocks, given the rows that are now in them, in order.

        A partition that is a single block gets no stored block.
        """
        some = np.zeros(len(blocks.part) + len(blocks.partitions) + 1, np.bool_)
        some[touched] = True
        mine = np.flatnonzero(some[blocks.number(part, codes)])
        pieces = cut(blocks, part[mine], codes[mine], block_rows(self.summing.slots))
        several = blocks.divided | (np.bincount(pieces.part, minlength=len(blocks.partitions)) > 1)
        kept = several[pieces.part]
        of_rows = (np.cumsum(kept) - 1)[pieces.of_rows] if len(mine) else pieces.of_rows
        within = kept[pieces.of_rows] if len(mine) else np.zeros(0, np.bool_)
        summaries = self.summing.of(rows.take(mine[within]), of_rows[within], int(kept.sum()))
        return BlocksChange(
            blocks=blocks,
            touched=some[blocks.numbers],
            part=pieces.part[kept],
            start=pieces.start[kept],
            summaries=summaries,
        )

    def delta(self, change: BlocksChange) -> Batch:
        """Return the change of the trace."""
        arrangement, blocks = self.arrangement(), change.blocks
        start = from_values(np.ascontiguousarray(change.start), UINT64)
        weights = np.concatenate([np.ones((len(change.part), 1), np.int64), change.summaries.sums], axis=1)
        columns = (*blocks.partitions.take(change.part).columns, start, *change.summaries.values)
        made = Batch(schema=arrangement.schema, columns=columns, weights=weights)
        gone = blocks.rows.filter(change.touched).negate()
        return arrange(concat([gone, made], arrangement.schema), arrangement)
