"""Values that must never change: `python -m tests.zset.goldens` prints those of this code, to compare or to begin with.

A difference is a broken promise: hashes, order codes and encodings lie in databases and decide where rows live.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from dbsp.zset.batch import Batch, arrange
from dbsp.zset.encoding import encode, schema_id
from dbsp.zset.hashing import hash_columns
from dbsp.zset.order import order_codes
from dbsp.zset.schema import FLOAT64, INT64, STRING, Arrangement, Column, OrderBy, Schema
from tests.zset.strategies import TYPES, VALUES

PATH = Path(__file__).parents[1] / "golden" / "zset.json"


def column(type_: pa.DataType) -> pa.Array:
    """All the values of a type, and a null."""
    return pa.array([*VALUES[type_], None], type_)


def mixed() -> Batch:
    """A small arranged batch with nulls, strings, floats and an order."""
    schema = Schema((Column("id", INT64, nullable=False), Column("name", STRING), Column("x", FLOAT64)))
    rows = [((1, "one", 1.5), 1), ((2, None, None), -2), ((-3, "", float("nan")), 3), ((1, "uno", -0.0), 1)]
    return arrange(Batch.from_rows(schema, rows), Arrangement(schema=schema, key=("id",), order=(OrderBy("x", True),)))


def nested() -> Batch:
    """All the values of the nested types, beside each other."""
    types = [type_ for type_ in TYPES if pa.types.is_nested(type_)]
    rows = zip(*(([*VALUES[type_], None] * 8)[:8] for type_ in types), strict=True)
    return Batch.from_rows(Schema.of({f"c{i}": type_ for i, type_ in enumerate(types)}), [(row, 1) for row in rows])


def hexed(words: Any) -> list[str]:
    """Words as hexadecimal digits."""
    return [f"{word:016x}" for word in words.tolist()]


def current() -> dict[str, Any]:
    """What this code computes."""
    long = pa.array([bytes(range(length)) for length in range(40)], pa.binary())
    two = [pa.array([1, 2, None]), pa.array(["a", "b", "c"])]
    batch = mixed()
    encoded = encode(batch)
    return {
        "hash": {str(type_): hexed(hash_columns([column(type_)], len(VALUES[type_]) + 1)) for type_ in TYPES},
        "hash of lengths": hexed(hash_columns([long], 40)),
        "hash of two columns": hexed(hash_columns(two, 3)),
        "hash of two columns, turned": hexed(hash_columns(two[::-1], 3)),
        "order code": {str(type_): hexed(order_codes(column(type_), OrderBy(""))) for type_ in TYPES},
        "order code, descending": {
            str(type_): hexed(order_codes(column(type_), OrderBy("", True, True))) for type_ in TYPES
        },
        "schema id": f"{schema_id(batch.schema, batch.arrangement):016x}",
        "encoding, head": encoded[:448].hex(" ", 8),
        "encoding, blake2b": hashlib.blake2b(encoded, digest_size=16).hexdigest(),
        "encoding of lists and structs, blake2b": hashlib.blake2b(encode(nested()), digest_size=16).hexdigest(),
        "encoding, empty": encode(Batch.empty(batch.schema)).hex(),
    }


if __name__ == "__main__":
    print(json.dumps(current(), indent=1))
