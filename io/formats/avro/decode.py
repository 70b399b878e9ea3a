"""The kernel that decodes Avro: it runs the program of one schema over many messages, without Python objects per
value.

A program is a table of instructions (`Code`, a, b). Values are written to slots; each slot is a row of the result
arrays. A number is an int64 (a float as its bits); texts and bytes are their start and length. A slot that a message
does not reach stays unset, which means null.

All arrays and maps of a message together have at most as many items as the message has bytes, plus one. This bound
keeps the cost linear, since items of zero bytes could be claimed in any number. Source: the Avro 1.12 specification,
"Binary encoding".
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

DEPTH_MAX = 32
NOWHERE = -1
"""The slot number in the instructions of values that are skipped."""


class Code(IntEnum):
    """The operation of an instruction; the first operand is the slot, unless the comment says otherwise."""

    END = 0
    NUMBER = 1  # a zigzag varint: int, long, enum
    BOOLEAN = 2
    FLOAT = 3
    DOUBLE = 4
    BYTES = 5  # length, then bytes: bytes, string
    FIXED = 6  # second operand: the size
    MARK = 7  # a record begins: set its slot
    UNION = 8  # first operand: the number of branches; second: their start in `branches`
    JUMP = 9  # first operand: the next instruction
    BLOCK = 10  # first operand: the instruction after the array or map
    ITEM_END = 11  # first operand: the instruction of its `BLOCK`


_END, _NUMBER, _BOOLEAN, _FLOAT, _DOUBLE, _BYTES, _FIXED = 0, 1, 2, 3, 4, 5, 6
_MARK, _UNION, _JUMP, _BLOCK, _ITEM_END = 7, 8, 9, 10, 11
_SIZES = (0, 0, 1, 4, 8, 0, 0, 0)
"""Bytes of a value by instruction, for the instructions whose values all have one size; 0 for the others."""


@njit(cache=True)
def _varint(data: NDArray[np.uint8], at: int, end: int) -> tuple[Any, int]:
    """Return a zigzag number and the position after it; the position is -1 if the number has no end."""
    raw, shift = np.uint64(0), np.uint64(0)
    while at < end and shift <= np.uint64(63):
        byte = np.uint64(data[at])
        at += 1
        raw |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            return np.int64(raw >> np.uint64(1)) ^ -np.int64(raw & np.uint64(1)), at
        shift += np.uint64(7)
    return 0, -1


@njit(cache=True)
def _bits(data: NDArray[np.uint8], at: int, size: int) -> Any:
    """Return little-endian bytes as a number."""
    bits = np.uint64(0)
    for place in range(size):
        bits |= np.uint64(data[at + place]) << np.uint64(8 * place)
    return np.int64(bits)


@njit(cache=True)
def _fits(  # noqa: C901, PLR0912 - one interpreter loop, compiled
    data: NDArray[np.uint8],
    span: tuple[int, int],
    program: NDArray[np.int64],
    branches: NDArray[np.int64],
    slots: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]],
    row: int,
    left: NDArray[np.int64],
) -> bool:
    """Run the program over one message; return whether the message fits."""
    (at, end), (values, lengths, there), step, depth, items = span, slots, 0, 0, span[1] - span[0] + 1
    while True:
        code, a, b = program[step, 0], program[step, 1], program[step, 2]
        step += 1
        if code in (_NUMBER, _BYTES, _UNION, _BLOCK):
            number, at = _varint(data, at, end)
            if at < 0:
                return False
            if code in (_NUMBER, _BYTES):
                size = number if code == _BYTES else 0
                if size < 0 or size > end - at:
                    return False
                if a >= 0:
                    values[a, row], lengths[a, row], there[a, row] = at if code == _BYTES else number, size, 1
                at += size
            elif code == _UNION:
                if number < 0 or number >= a:
                    return False
                step = branches[b + number]
            elif number < 0:  # a block with its size in bytes: skip it, and read the next block's count
                size, at = _varint(data, at, end)
                if at < 0 or size < 0 or size > end - at:
                    return False
                at += size
                step -= 1
            elif number == 0:
                step = a
            else:
                if depth == DEPTH_MAX or number > items:
                    return False
                left[depth], items, depth = number, items - number, depth + 1
        elif code == _ITEM_END:
            left[depth - 1] -= 1
            if left[depth - 1] > 0:
                step = a + 1
            else:
                depth -= 1
                step = a
        elif code == _JUMP:
            step = a
        elif code == _END:
            return bool(at == end)
        else:
            size = _SIZES[code] if code != _FIXED else b
            if size < 0 or size > end - at or (code == _BOOLEAN and data[at] > 1):
                return False
            if a >= 0:
                there[a, row], lengths[a, row] = 1, size
                values[a, row] = at if code == _FIXED else _bits(data, at, size)
            at += size


@njit(cache=True)
def _first_wrong(
    data: NDArray[np.uint8],
    bounds: NDArray[np.int64],
    program: NDArray[np.int64],
    branches: NDArray[np.int64],
    slots: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]],
) -> int:
    """Fill the slots from messages `data[bounds[i]:bounds[i + 1]]`; return the first that does not fit, or -1."""
    left = np.zeros(DEPTH_MAX, np.int64)
    for row in range(len(bounds) - 1):
        if not _fits(data, (bounds[row], bounds[row + 1]), program, branches, slots, row, left):
            return row
    return -1


def run(
    data: NDArray[np.uint8],
    bounds: NDArray[np.int64],
    program: NDArray[np.int64],
    branches: NDArray[np.int64],
    slots: int,
) -> tuple[int, NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Return the first message that does not fit, or -1; then values, lengths and set masks, with a row per slot.

    **Cost** some 20 nanoseconds a value.
    """
    shape: Any = (slots, len(bounds) - 1)
    values, lengths, there = np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape, np.uint8)
    wrong = _first_wrong(data, bounds, program, branches, (values, lengths, there))
    return int(wrong), values, lengths, there.view(np.bool_)
