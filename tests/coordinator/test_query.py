"""Ad-hoc queries read views and nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pyarrow as pa
import pytest

from dbsp.coordinator.query import process as query_process
from dbsp.coordinator.query.process import Queries
from dbsp.coordinator.query.statement import QueryLimits, run_query, views_of
from dbsp.errors import CapacityError, ConfigError, UnavailableError

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
        "SELECT * FROM late TABLESAMPLE 100%",
        "SELECT * FROM late USING SAMPLE reservoir(2 ROWS)",
    ],
)
def test_selects_work(sql: str) -> None:
    assert ask(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "select (with pg_settings as (select 1) select 1), t.* from pg_settings t",
        "select * from pg_settings, (with pg_settings as (select 1) select * from pg_settings)",
        "with pg_settings as (select * from pg_settings) select * from pg_settings",
        "with a as (select * from pg_settings), pg_settings as (select 1) select * from a",
        "(with pg_settings as (select 1) select 1) union all select count(*) from pg_settings",
        "with recursive a(n) as (select 1 union all (with pg_settings as (select 1) select n + 1 from a where n < 2)) "
        "select * from a, pg_settings",
        "select 1 order by (select max(name) from pg_settings)",
    ],
)
def test_a_name_of_the_statement_is_known_in_its_scope_alone(sql: str) -> None:
    with pytest.raises(ConfigError, match="no such view: view=pg_settings"):
        ask(sql)


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("with a as (select 1 as n), b as (select n + 1 as n from a) select b.n from a, b", [{"n": 2}]),
        (
            "with recursive a(n) as (select 1 union all select n + 1 from a where n < 3) select max(n) as n from a",
            [{"n": 3}],
        ),
        (
            "with A as (select 1 as n) select n from (with c as (select * from a) select * from c union select * from a)",
            [{"n": 1}],
        ),
        (
            "with a as materialized (select 1 as n) select (select max(n) from a) as n order by (select n from a)",
            [{"n": 1}],
        ),
        ("select x.n from (with a as (select 1 as n) select * from a) x, lateral (select x.n)", [{"n": 1}]),
    ],
)
def test_names_of_the_statement_are_known_where_they_are(sql: str, rows: list[dict[str, object]]) -> None:
    assert ask(sql) == rows


@pytest.mark.parametrize("sql", ["select '\ud800' as x", "select \udfff"])
def test_half_of_a_character_is_a_clear_error_and_ends_no_process(queries: Queries, sql: str) -> None:
    before = queries.ask("select 1 as n", [], lambda _: nullcontext({}), QueryLimits())
    with pytest.raises(ConfigError, match="the statement holds half of a character: place="):
        queries.ask(sql, [], lambda _: nullcontext({}), QueryLimits())
    assert before.num_rows == 1


def test_no_rewrite_changes_an_answer() -> None:
    """With DuckDB's merging of common parts the first SELECT gives the `next` of the link, not that of the one it leads to."""
    tables = {"links": pa.table({"id": [2, 3], "name": ["", ""], "next": [0, 2]}), "names": pa.table({"name": [""]})}
    pairs = "(SELECT x.name, y.next FROM links x JOIN links y ON x.next = y.id)"
    sql = f"""
        SELECT x.name, x.next FROM {pairs} x JOIN names y ON x.name = y.name
        UNION ALL
        SELECT x.name, 7 FROM {pairs} x JOIN names y ON x.name = y.name
    """
    assert sorted(run_query(sql, tables, QueryLimits()).column("next").to_pylist()) == [0, 7]


def test_a_statement_that_is_nested_too_deep_is_refused_as_one() -> None:
    with pytest.raises(ConfigError, match="nested too deep"):
        views_of("SELECT " + "+".join(["1"] * 900), ("late",))


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


# --- the process that they run in -----------------------------------------------------------------------------------

JOINED = "SELECT length(repeat('x', 1000000000) || repeat('y', 2000000000)) AS n"


@pytest.fixture(scope="module")
def queries() -> Iterator[Queries]:
    with Queries(at_once_max=1) as found:
        yield found


def ask_process(queries: Queries, sql: str, **limits: float) -> list[dict[str, object]]:
    found = queries.ask(sql, ("late", "other"), read, QueryLimits(**limits))  # type: ignore[arg-type]
    return list(found.to_pylist())


@contextmanager
def read(names: Sequence[str]) -> Iterator[dict[str, pa.Table]]:
    yield {name: TABLES[name] for name in names}


def test_a_process_answers_as_this_one(queries: Queries) -> None:
    sql = "SELECT a.name, a.n + b.n AS n FROM late a JOIN other b USING (name) ORDER BY ALL"
    assert ask_process(queries, sql) == ask(sql)
    assert ask_process(queries, "VALUES (1)") == [{"col0": 1}]


def test_a_process_refuses_as_this_one(queries: Queries) -> None:
    for sql in ("SELECT * FROM nothing", "SELECT nothing FROM late", "SELECT 1; SELECT 2"):
        with pytest.raises(ConfigError) as here:
            ask(sql)
        with pytest.raises(ConfigError) as there:
            ask_process(queries, sql)
        assert str(there.value) == str(here.value)


ASK_AND_SAY_PEAK = """
import resource, sys
from contextlib import nullcontext
from dbsp.coordinator.query.statement import QueryLimits
from dbsp.coordinator.query.process import Queries
from dbsp.errors import CapacityError

with Queries() as queries:
    try:
        queries.ask(sys.argv[1], (), lambda names: nullcontext({}), QueryLimits(memory_mb_max=64, timeout_s=60.0))
    except CapacityError as error:
        print(error)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def test_memory_that_duckdb_does_not_count_is_bounded(queries: Queries) -> None:
    """Asked from a fresh interpreter: a child's peak is never told as less than its parent's, nor than an older child's."""
    found = subprocess.run([sys.executable, "-c", ASK_AND_SAY_PEAK, JOINED], check=True, capture_output=True, text=True)
    *said, peak_kib = found.stdout.splitlines()
    assert "memory_mb_max=64" in "\n".join(said)
    assert int(peak_kib) < 1 << 20

    with pytest.raises(CapacityError, match="memory_mb_max=64"):
        ask_process(queries, JOINED, memory_mb_max=64)
    assert ask_process(queries, "SELECT 1 AS n") == [{"n": 1}]


def test_a_call_that_no_interrupt_reaches_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_process, "KILL_AFTER_S", 0.0)
    hung = "import sys, time; print('{}', flush=True); sys.stdin.readline(); time.sleep(600)"
    with (
        Queries(command=[sys.executable, "-c", hung]) as queries,
        pytest.raises(CapacityError, match=r"timeout_s=0\.2"),
    ):
        ask_process(queries, "SELECT 1", timeout_s=0.2)


def test_a_process_that_dies_is_replaced(queries: Queries) -> None:
    assert ask_process(queries, "SELECT 1 AS n") == [{"n": 1}]
    assert queries._idle is not None
    queries._idle._process.kill()
    queries._idle._process.wait()
    assert ask_process(queries, "SELECT 1 AS n") == [{"n": 1}]


def test_a_result_is_bounded(queries: Queries) -> None:
    with pytest.raises(CapacityError, match="result_mb_max=1"):
        ask_process(queries, "SELECT repeat('x', 100000) FROM range(100)", result_mb_max=1)


def test_queries_beyond_those_at_once_are_refused(queries: Queries) -> None:
    @contextmanager
    def asks_again(names: Sequence[str]) -> Iterator[dict[str, pa.Table]]:
        with pytest.raises(UnavailableError, match="too many queries"):
            ask_process(queries, "SELECT 1", timeout_s=0.1)
        with read(names) as found:
            yield found

    assert queries.ask("FROM late", ("late",), asks_again, QueryLimits()).num_rows


def test_no_process_is_an_error_with_its_story() -> None:
    with (
        Queries(command=[sys.executable, "-c", "raise SystemExit('broken')"]) as queries,
        pytest.raises(UnavailableError, match="exit=1 broken"),
    ):
        ask_process(queries, "SELECT 1")
