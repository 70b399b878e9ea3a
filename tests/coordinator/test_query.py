"""Ad-hoc queries read views and nothing else."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from dbsp.coordinator.query import QueryLimits, run_query, views_of
from dbsp.errors import CapacityError, ConfigError

VIEW = pa.table({"name": ["a", "b", "c"], "n": [1, 2, 3], "weight": pa.array([1, 2, -1], pa.int64())})
TABLES = {"late": VIEW, "other": VIEW}
SECRET = pa.table({"secret": ["a variable of the caller"]})


def ask(sql: str, **limits: float) -> list[dict[str, object]]:
    return run_query(sql, TABLES, QueryLimits(**limits)).to_pylist()  # type: ignore[arg-type]


def test_rows_are_repeated_by_weight() -> None:
    assert ask("SELECT name, count(*) AS c FROM late GROUP BY name ORDER BY name") == [
        {"name": "a", "c": 1},
        {"name": "b", "c": 2},
    ]


@pytest.mark.parametrize(
    "sql",
    [
        "FROM late",
        "WITH x AS (SELECT n FROM late) SELECT max(n) FROM x",
        "SELECT * FROM LATE JOIN other USING (name)",
        "SELECT (SELECT max(n) FROM late), i FROM range(3) AS r(i)",
        "VALUES (1)",
        "SELECT n FROM late UNION ALL SELECT n + 1 FROM other;",
    ],
)
def test_selects_work(sql: str) -> None:
    assert ask(sql)


def test_only_the_views_read_are_named() -> None:
    assert views_of("SELECT * FROM late", ("late", "other")) == ("late",)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('{file}')",
        "SELECT * FROM read_text('{file}')",
        "SELECT * FROM read_blob('{file}')",
        "SELECT * FROM read_json('{file}')",
        "SELECT * FROM read_parquet('{file}')",
        "SELECT * FROM '{file}'",
        "SELECT * FROM glob('/*')",
        "SELECT content FROM (SELECT * FROM read_text('{file}'))",
        "WITH x AS (SELECT * FROM read_text('{file}')) SELECT * FROM x",
        "SELECT (SELECT content FROM read_text('{file}'))",
        "SELECT * FROM late WHERE name IN (SELECT content FROM read_text('{file}'))",
        "SELECT * FROM query('SELECT * FROM late')",
        "SELECT * FROM query_table(['late'])",
        "SELECT * FROM arrow_scan(1::UBIGINT, 2::UBIGINT, 3::UBIGINT)",
        "SELECT * FROM pandas_scan(1::UBIGINT)",
        "SELECT * FROM duckdb_settings()",
        "SELECT * FROM duckdb_secrets()",
        "SELECT * FROM sniff_csv('{file}')",
        "SELECT * FROM SECRET",
        "SELECT * FROM TABLES",
        "SELECT getenv('HOME')",
        "COPY late TO '{file}.out'",
        "COPY (SELECT 1) TO '{file}.out'",
        "EXPORT DATABASE '{file}.out'",
        "ATTACH '{file}.db' AS d",
        "INSTALL httpfs",
        "LOAD '{file}'",
        "PRAGMA database_list",
        "PRAGMA enable_profiling",
        "SET enable_external_access = true",
        "SET memory_limit = '100GB'",
        "RESET lock_configuration",
        "CREATE TABLE x AS SELECT 1",
        "INSERT INTO late VALUES ('x', 1)",
        "DELETE FROM late",
        "WITH gone AS (DELETE FROM late RETURNING *) SELECT * FROM gone",
        "CALL pragma_version()",
        "SELECT 1; SELECT 2",
        "SELECT 1; COPY late TO '{file}.out'",
        "SHOW TABLES",
        "SHOW ALL TABLES",
        "SELECT * FROM information_schema.tables",
        "SELECT * FROM duckdb_logs",
        "EXPLAIN ANALYZE SELECT 1",
        "PREPARE x AS SELECT 1",
        "VACUUM",
        "CHECKPOINT",
        "",
        "not sql at all",
    ],
)
def test_nothing_else_is_reachable(sql: str, tmp_path: Path) -> None:
    file = tmp_path / "file.csv"
    file.write_text("a,b\n1,2\n")
    with pytest.raises(ConfigError):
        ask(sql.replace("{file}", str(file)))
    assert [path.name for path in tmp_path.iterdir()] == ["file.csv"]


def test_a_long_query_is_interrupted() -> None:
    with pytest.raises(CapacityError, match="timeout_s"):
        ask("SELECT count(*) FROM range(100000000) a, range(100000) b WHERE a.range % 7 = b.range % 11", timeout_s=0.2)


def test_memory_is_bounded() -> None:
    with pytest.raises(CapacityError, match="memory_mb_max"):
        ask("SELECT range, count(*) FROM range(50000000) GROUP BY range ORDER BY 2 LIMIT 1", memory_mb_max=40)


def test_rows_are_bounded() -> None:
    with pytest.raises(CapacityError, match="rows_max"):
        ask("SELECT * FROM range(100000)", rows_max=10)
