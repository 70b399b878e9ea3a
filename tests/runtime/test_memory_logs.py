"""The output log in memory: a step that is written once more must give the same rows."""

import pytest

from dbsp.errors import DataError
from dbsp.runtime.memory_logs import MemoryOutputLog
from dbsp.zset.batch import Batch
from dbsp.zset.schema import INT64, STRING, Schema

SCHEMA = Schema.of({"a": INT64, "b": STRING})


def rows(number: int, text: str, weight: int) -> Batch:
    """Two rows, one of them this."""
    return Batch.from_rows(SCHEMA, [((1, "x"), 1), ((number, text), weight)])


def test_a_step_written_again_is_compared() -> None:
    log = MemoryOutputLog()
    log.write(1, 0, {"v": rows(2, "y", 1)}, ())
    log.write(2, 0, {"v": rows(2, "y", 1)}, ())
    for name, other in (
        ("v", rows(2, "z", 1)),
        ("v", rows(3, "y", 1)),
        ("v", rows(2, "y", -1)),
        ("w", rows(2, "y", 1)),
    ):
        with pytest.raises(DataError, match="a replayed step gave another output: step=0"):
            log.write(2, 0, {name: other}, ())
