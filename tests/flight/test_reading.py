"""What ADBC's client reads: views, queries, parameters, catalogs; of one step, and of any size."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from dbsp.coordinator.flight import messages as m
from dbsp.coordinator.flight.statements import VALUES_CHARS_MAX, SentStatement, numbered
from dbsp.coordinator.query import process
from dbsp.errors import CapacityError, ConfigError
from tests.flight.conftest import Connect, answering, asked, check_refused, dbapi
from tests.postgres.conftest import until_processed
from tests.postgres.kinds import ROWS
from tests.postgres.test_follow import until

MANY = 100_000
STEPS = 30


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with answering(tmp_path_factory.mktemp("flight"), "query.rows_max=1000") as made:
        yield made


def push(server: Any, ids: range, amounts: int, customer: str = "c") -> None:
    count = len(ids)
    rows = {"id": list(ids), "customer": [customer] * count, "amount": [amounts] * count}
    server.service.push("orders", pa.table(rows))


def test_a_whole_view_has_its_own_types(server: Any, connect: Connect) -> None:
    found = asked(connect(server), "select * from all_kinds")
    assert found.schema.equals(server.results.views["all_kinds"])
    assert sorted(found.to_pylist(), key=lambda row: int(row["id"])) == ROWS
    some = asked(connect(server), 'select text, id from public."all_kinds"')
    assert some.column_names == ["text", "id"]
    assert sorted(some.column("id").to_pylist()) == [1, 2]


def test_queries_are_those_of_postgres(server: Any, connect: Connect) -> None:
    connection = connect(server)
    sql = "select customer, amount / 7 as part from kinds.public.per_customer where customer in ('a', 'b') order by 1"
    assert asked(connection, sql).to_pylist() == [{"customer": "a", "part": 1}, {"customer": "b", "part": 85}]
    assert asked(connection, "select current_database() as d, 'x?' as x").to_pylist() == [{"d": "kinds", "x": "x?"}]
    tables = asked(connection, "select table_name from information_schema.tables order by 1")
    assert tables.column(0).to_pylist() == ["all_kinds", "dead_letters", "large", "per_customer", "spent"]
    assert asked(connection, "show tables").equals(tables.rename_columns(["name"]))
    assert asked(connection, "describe large").column("column_name").to_pylist() == ["id", "customer", "amount"]
    assert asked(connection, "explain select * from large").column(0)[0].as_py().startswith("as of step")
    assert asked(connection, "select * from dead_letters").num_rows == 0


@pytest.mark.parametrize(
    ("sql", "stories"),
    [
        ("select nothing from large", ["Binder Error", '"nothing"']),
        ("select * from nowhere", ["no such view: view=nowhere"]),
        ("selec 1", ["not SQL", "hint: write one SELECT"]),
        ("insert into large values (1, 'a', 2)", ["only SELECT is allowed: statement=INSERT", "coordinator push"]),
        ("select 1; select 2", ["exactly one statement"]),
        ("show create view large", ["only SELECT is allowed", "SHOW TABLES lists the views"]),
        ("select now() + 1", ["more"]),
        ("select $1 + 1", ["a parameter without a value: $1"]),
        ("select * from read_csv('/etc/passwd')", ["read_csv"]),
        ("select 1 / (i - 5000) from range(9000) r(i) where i < 5000 union all select error('late')", ["late"]),
    ],
)
def test_errors_are_in_sqls_words(server: Any, connect: Connect, sql: str, stories: list[str]) -> None:
    check_refused(connect(server), sql, *stories)


def test_rows_cannot_be_written(server: Any, connect: Connect) -> None:
    connection = connect(server)
    with connection.cursor() as cursor, pytest.raises(dbapi.Error, match="only SELECT is allowed: statement=INSERT"):
        cursor.executemany("insert into large values (?, ?, ?)", [(1, "a", 2)])
    with connection.cursor() as cursor:
        cursor.adbc_statement.set_sql_query("delete from large")
        with pytest.raises(dbapi.Error, match="only reading is allowed"):
            cursor.adbc_statement.execute_update()
    with connection.cursor() as cursor, pytest.raises(dbapi.Error):
        cursor.adbc_ingest("more", pa.table({"a": [1]}))


@pytest.mark.parametrize(
    "value",
    [
        -7, 1 << 40, 2.5, Decimal("-12.50"), "it's ?", "", True, b"\x00\xff\\", date(1999, 2, 28),
        time(23, 59, 59, 120), datetime(1999, 12, 31, 23, 59, 59, 500_000), datetime(2024, 2, 29, 12, tzinfo=UTC), None,
    ],
)  # fmt: skip
def test_a_parameter_comes_back_as_it_was_sent(server: Any, connect: Connect, value: Any) -> None:
    found = asked(connect(server), "select ? as value", (value,)).column(0)[0].as_py()
    assert found == value


def test_durations_are_parameters() -> None:
    span = timedelta(days=-1, hours=3, microseconds=5)
    assert SentStatement("").bind(pa.table({"0": [span]})).values == (
        ("interval", "-1 days 10800 seconds 5 microseconds"),
    )


def test_parameters_are_bound_in_their_order(server: Any, connect: Connect) -> None:
    connection = connect(server)
    sql = "select id, ? as label from large where customer = ? and amount between ? and ?"
    assert asked(connection, sql, ("x", "b", 500, 700)).to_pylist() == [{"id": 2, "label": "x"}]
    assert asked(connection, "select $2::text || $1 as both", ("a", "b")).to_pylist() == [{"both": "ba"}]
    for values in ((), (1,), ([1], 2)):
        with pytest.raises(dbapi.Error, match=r"a parameter without a value|a kind that is not supported"):
            asked(connection, "select ? + ?", values)


def test_a_prepared_statement_runs_again_with_other_values(server: Any, connect: Connect) -> None:
    with connect(server).cursor() as cursor:
        schema = cursor.adbc_prepare("select amount from per_customer where customer = ? and amount > ?")
        assert schema.types == [pa.string(), pa.int64()]
        for customer, amounts in (("a", [10]), ("b", [600]), ("nobody", []), ("a", [10])):
            cursor.execute("select amount from per_customer where customer = ? and amount > ?", (customer, 5))
            assert cursor.fetch_arrow_table().column(0).to_pylist() == amounts


def test_several_rows_of_parameters_are_refused() -> None:
    with pytest.raises(ConfigError, match="one row of parameters is needed: rows=2"):
        SentStatement("select ?").bind(pa.table({"0": [1, 2]}))
    with pytest.raises(CapacityError, match="the parameters are too long"):
        SentStatement("select ?").bind(pa.table({"0": ["x" * (VALUES_CHARS_MAX + 1)]}))


def test_question_marks_in_texts_are_none() -> None:
    assert numbered("select '?', \"?\", ? -- ?\n, ?") == "select '?', \"?\", $1 -- ?\n, $2"
    assert numbered("select ?, 'an open text") == "select ?, 'an open text"
    assert numbered("select 1") == "select 1"


@pytest.mark.parametrize(
    "handle", [b"", b"[]", b"\xff", b'["select 1", [1]]', b'["select 1", [["int8", 1]]]', b"[" * 9999]
)
def test_a_handle_of_others_is_refused(handle: bytes) -> None:
    with pytest.raises(ConfigError, match="not a handle"):
        SentStatement.of(handle)


def test_messages_are_those_of_the_protocol() -> None:
    """The bytes are written out by the rules of protobuf, from the numbers in Arrow's file."""
    url = b"type.googleapis.com/arrow.flight.protocol.sql.CommandGetTables"
    fields = b"\x0a\x01k\x1a\x01%\x22\x05TABLE\x28\x01"
    name, found = m.unpacked(b"\x0a" + bytes([len(url)]) + url + b"\x12" + bytes([len(fields)]) + fields) or ("", None)
    assert name == "CommandGetTables"
    assert (m.given(found, "catalog"), m.given(found, "db_schema_filter_pattern")) == ("k", None)
    assert (found.table_name_filter_pattern, list(found.table_types), found.include_schema) == ("%", ["TABLE"], True)
    for data in (
        b"select 1",
        b"\xff\xff",
        b"",
        m.packed(m.message("CommandGetCatalogs")).replace(b"Catalogs", b"Catalogz"),
    ):
        assert m.unpacked(data) is None


def names_of(objects: Any) -> dict[str, dict[str, list[str]]]:
    """Catalogs with their schemas, and the tables of each."""
    return {
        catalog["catalog_name"]: {
            schema["db_schema_name"]: [table["table_name"] for table in schema["db_schema_tables"] or ()]
            for schema in catalog["catalog_db_schemas"] or ()
        }
        for catalog in objects.read_all().to_pylist()
    }


def test_catalogs_tell_of_the_views(server: Any, connect: Connect) -> None:
    connection = connect(server)
    views = ["all_kinds", "dead_letters", "large", "per_customer", "spent"]
    assert names_of(connection.adbc_get_objects()) == {"kinds": {"public": views}}
    assert names_of(connection.adbc_get_objects(depth="catalogs")) == {"kinds": {}}
    assert names_of(connection.adbc_get_objects(table_name_filter="%ar%")) == {"kinds": {"public": ["large"]}}
    assert names_of(connection.adbc_get_objects(db_schema_filter="other")) == {"kinds": {}}
    assert names_of(connection.adbc_get_objects(table_types_filter=["VIEW"])) == {"kinds": {"public": []}}
    assert connection.adbc_get_table_types() == ["TABLE"]
    assert connection.adbc_get_table_schema("all_kinds").names == server.results.views["all_kinds"].names
    columns = connection.adbc_get_objects(table_name_filter="large").read_all().to_pylist()[0]
    (table,) = columns["catalog_db_schemas"][0]["db_schema_tables"]
    assert [each["column_name"] for each in table["table_columns"]] == ["id", "customer", "amount"]
    info = connection.adbc_get_info()
    assert (info["vendor_name"], info["vendor_arrow_version"]) == ("dbsp", pa.__version__)


def test_a_view_of_any_size_is_streamed_as_of_one_step(server: Any, connect: Connect) -> None:
    push(server, range(10, 10 + MANY), 900)
    until_processed(server.service)
    connection = connect(server)
    assert asked(connection, "select id from large where true").num_rows == MANY + 1, "no limit of rows counts"
    with connection.cursor() as cursor:
        cursor.execute("select id, amount from large")
        reader = cursor.fetch_record_batch()
        batches = [reader.read_next_batch()]
        push(server, range(10, 10 + MANY), 1)  # takes all of them away, while they are read
        until_processed(server.service)
        batches += list(reader)
    table = pa.Table.from_batches(batches)
    assert len(batches) > 1
    assert sorted(table.column("id").to_pylist()) == [2, *range(10, 10 + MANY)]
    assert asked(connection, "select id from large").num_rows == 1
    spent = asked(connection, "select amount from spent").column(0).to_pylist()
    assert sorted(spent) == [1] * MANY + [10, 600], "a row comes as often as its weight says"
    until(lambda: server.service.leases.count == 0)
    assert server.results.held._now == 0


def test_a_query_is_streamed_while_its_process_makes_it(
    server: Any, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the result nor its copy is held: portions are asked for as the client reads, and a client that leaves ends it."""
    made: list[int] = []
    original = process._Process.portion
    monkeypatch.setattr(process._Process, "portion", lambda own, limits: (made.append(1), original(own, limits))[1])
    connection, rows = connect(server), 1_500_000
    with connection.cursor() as cursor:
        cursor.execute(f"select i, 'x' || i as name from range({rows}) r(i)")
        reader = cursor.fetch_record_batch()
        first = reader.read_next_batch()
        assert len(made) < rows // 16_384 // 2, "most of it is not made before it is read"
        assert sum(len(batch) for batch in reader) + len(first) == rows
    assert len(made) > rows // 16_384
    with fl.connect(server.url) as client:
        command = m.packed(m.message("CommandStatementQuery", query=f"select i from range({rows}) r(i)"))
        flight = client.get_flight_info(fl.FlightDescriptor.for_command(command))
        reading = client.do_get(flight.endpoints[0].ticket)
        reading.read_chunk()
        reading.cancel()
    until(lambda: server.service._queries._places._value == server.service.config.query.at_once_max)
    assert server.results.held._now == 0


def test_reads_go_on_during_steps_and_each_is_of_one_step(server: Any, connect: Connect) -> None:
    """Each step gives all the orders of one customer the same new amount, so no read may see two amounts."""
    connection, ids = connect(server), range(600_000, 600_050)
    push(server, ids, 600, "same")
    until_processed(server.service)
    ended = threading.Event()

    def steps() -> None:
        for number in range(STEPS):
            push(server, ids, 601 + number, "same")
            until_processed(server.service)
        ended.set()

    pushing = threading.Thread(target=steps)
    pushing.start()
    seen: list[int] = []
    while not ended.is_set() or not seen or seen[-1] != 600 + STEPS:
        for sql in ("select customer, amount from large", "select amount from large where customer = 'same'"):
            table = asked(connection, sql)
            if "customer" in table.column_names:
                table = table.filter(pa.compute.equal(table.column("customer"), "same"))
            amounts = table.column("amount").to_pylist()
            assert len(amounts) == len(ids)
            assert len(set(amounts)) == 1, "rows of two steps"
            seen.append(amounts[0])
    pushing.join()
    assert seen == sorted(seen)
    assert len(set(seen)) > 1, "no step ended meanwhile"
