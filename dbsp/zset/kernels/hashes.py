"""Kernels that hash; they must never change, because hashes are stored and decide the shard of a row.

1. A word is hashed by a bijection of 64 bits (`mix(word + GAMMA)`, the finaliser of splitmix64), so that equal hashes mean equal
   words.
2. Bytes are hashed eight at a time, little-endian, the last word padded with zeros, the length mixed in last.
3. Hashes of several columns are combined from left to right: multiply, rotate, add, mix; the order matters.

Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014), for the mixer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dbsp.zset.kernels.kernel import helper, kernel, reads, writes

GAMMA = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)
COMBINE = np.uint64(0xD6E8FEB86659FD93)
WORD = np.uint64(0xA0761D6478BD642F)
BYTES_SEED = np.uint64(0xE7037ED1A0B428DB)

_S30, _S27, _S31, _S23, _S41, _S29, _S35 = (np.uint64(n) for n in (30, 27, 31, 23, 41, 29, 35))

_U64, _U64_OUT = reads(types.uint64), writes(types.uint64)


@helper
def _mix(word):  # type: ignore[no-untyped-def]  # numba infers the types
    """Return the word mixed by the finaliser of splitmix64."""
    word = (word ^ (word >> _S30)) * MIX_1
    word = (word ^ (word >> _S27)) * MIX_2
    return word ^ (word >> _S31)


@helper
def _combine(left, right):  # type: ignore[no-untyped-def]
    """Return one hash of a left and a right one, dependent on their order; a bijection in `right` for each `left`."""
    left = left * COMBINE
    return _mix(((left << _S23) | (left >> _S41)) + right)


@intrinsic
def load_word(typing: Any, data: Any, position: Any) -> Any:  # noqa: ARG001  numba's signature
    """Return eight bytes at any position as one word."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = builder.gep(array.data, [arguments[1]])
        wide = builder.bitcast(pointer, ir.IntType(64).as_pointer())
        return builder.load(wide, align=1)

    return types.uint64(data, position), generate


@helper
def tail_word(data, position, count):  # type: ignore[no-untyped-def]
    """Return the last one to seven bytes as one word, zero-extended."""
    if position + 8 <= len(data):
        return load_word(data, position) & (  # type: ignore[call-arg]  # numba passes the first
            (np.uint64(1) << np.uint64(8 * count)) - np.uint64(1)
        )
    word = np.uint64(0)
    for k in range(count):
        word |= np.uint64(data[position + k]) << np.uint64(8 * k)
    return word


@helper
def _absorb(state, word):  # type: ignore[no-untyped-def]
    """Return the state of a byte string's hash after one more word."""
    word = word * WORD
    state ^= (word << _S29) | (word >> _S35)
    return ((state << _S27) | (state >> np.uint64(37))) * MIX_1 + GAMMA


@kernel(types.void(_U64, _U64_OUT))
def hash_words(values, out):  # type: ignore[no-untyped-def]
    """Write the hash of each word."""
    for i in range(len(values)):
        out[i] = _mix(values[i] + GAMMA)


@kernel(types.void(reads(types.uint64, 2), _U64_OUT))
def hash_word_pairs(values, out):  # type: ignore[no-untyped-def]
    """Write the hash of each pair of words, low and high."""
    for i in range(len(values)):
        out[i] = _combine(_mix(values[i, 0] + GAMMA), _mix(values[i, 1] + GAMMA))


@kernel(types.void(reads(types.int32), reads(types.uint8), _U64_OUT))
def hash_bytes(offsets, data, out):  # type: ignore[no-untyped-def]
    """Write the hash of each byte string `data[offsets[i]:offsets[i + 1]]`."""
    for i in range(len(out)):
        position = np.int64(offsets[i])
        length = np.int64(offsets[i + 1]) - position
        state = BYTES_SEED
        for _ in range(length >> 3):
            state = _absorb(state, load_word(data, position))  # type: ignore[call-arg]
            position += 8
        if length & 7:
            state = _absorb(state, tail_word(data, position, length & 7))
        out[i] = _mix(state ^ np.uint64(length) * MIX_2)


@kernel(types.void(_U64, _U64, _U64_OUT))
def combine(left, right, out):  # type: ignore[no-untyped-def]
    """Write one hash per row of a left and a right one."""
    for i in range(len(out)):
        out[i] = _combine(left[i], right[i])
