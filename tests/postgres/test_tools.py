"""Tools that read the catalogs: psql, SQLAlchemy, and queries of the kind that BI tools send. None may fail."""

# ruff: noqa: E501 - queries are as tools send them
from __future__ import annotations

import shutil
import subprocess
from typing import Any

import pytest

from dbsp.coordinator.serving.letters import RELATION
from tests.postgres.conftest import Connect

COMMANDS = (
    r"\d", r"\d+", r"\dt", r"\dt+", r"\d per_customer", r"\d dead_letters", r"\d+ all_kinds", r"\dv", r"\dm", r"\di", r"\ds", r"\dn+", r"\l", r"\l+", r"\du",
    r"\df", r"\dT", r"\dp", r"\db", r"\dx", r"\dC", r"\dD", r"\dE", r"\drds", r"\dS", r"\dRp", r"\des", r"\dy", r"\dL", r"\dP", r"\dX",
    r"\ddp", r"\conninfo", r"\encoding",
)  # fmt: skip
NAMED = {
    "grafana tables": "select quote_ident(table_name) as \"table\" from information_schema.tables where quote_ident(table_schema) not in"
    " ('information_schema', 'pg_catalog') and table_type in ('BASE TABLE', 'VIEW') order by 1",
    "grafana tables of the search path": "select quote_ident(table_name) from information_schema.tables where quote_ident(table_schema) in"
    " (select case when trim(s[i]) = '\"$user\"' then user else trim(s[i]) end from generate_series(array_lower(string_to_array("
    "current_setting('search_path'),','),1), array_upper(string_to_array(current_setting('search_path'),','),1)) as i,"
    " string_to_array(current_setting('search_path'),',') s) order by 1",
    "grafana columns": "select quote_ident(column_name) as \"column\", data_type as \"type\" from information_schema.columns"
    " where quote_ident(table_schema) || '.' || quote_ident(table_name) = 'public.per_customer' order by 1",
    "grafana version": "select current_setting('server_version_num')::int/100 as version",
    "grafana extension": "select extversion from pg_extension where extname = 'timescaledb'",
    "grafana time column": "select quote_ident(column_name) from information_schema.columns where table_schema = 'public'"
    " and udt_name in ('timestamptz', 'timestamp') order by ordinal_position limit 1",
    "metabase schemas": "select nspname from pg_namespace where nspname !~ '^pg_' and nspname <> 'information_schema'"
    " and has_schema_privilege(current_user, nspname, 'USAGE')",
    "metabase tables": "select n.nspname as schema, c.relname as name, case c.relkind when 'r' then 'TABLE' when 'v' then 'VIEW' when 'm'"
    " then 'MATERIALIZED VIEW' end as type, d.description, stat.n_live_tup as estimated_row_count from pg_catalog.pg_class c"
    " inner join pg_catalog.pg_namespace n on c.relnamespace = n.oid left join pg_catalog.pg_description d on c.oid = d.objoid"
    " and d.objsubid = 0 and d.classoid = 'pg_class'::regclass left join pg_stat_user_tables stat on n.nspname = stat.schemaname"
    " and c.relname = stat.relname where c.relnamespace = n.oid and n.nspname !~ '^pg_' and n.nspname <> 'information_schema'"
    " and c.relkind in ('r', 'p', 'v', 'f', 'm') and n.nspname in ('public') order by type, schema, name",
    "metabase privileges": "with table_privileges as (select null as role, t.schemaname as schema, t.objectname as \"table\","
    " pg_catalog.has_any_column_privilege(current_user, '\"' || t.schemaname || '\".\"' || t.objectname || '\"', 'select') as \"select\""
    " from (select schemaname, tablename as objectname from pg_catalog.pg_tables union select schemaname, viewname from pg_views"
    " union select schemaname, matviewname from pg_catalog.pg_matviews) t where t.schemaname !~ '^pg_')"
    " select * from table_privileges where \"select\"",
    "metabase columns": "select c.column_name as name, case when c.udt_schema in ('public', 'pg_catalog') then format('%s', c.udt_name)"
    " else format('\"%s\".\"%s\"', c.udt_schema, c.udt_name) end as \"database-type\", c.ordinal_position - 1 as position,"
    " col_description(cast(cast(format('%I.%I', cast(c.table_schema as text), cast(c.table_name as text)) as regclass) as oid),"
    " c.ordinal_position) from information_schema.columns c where c.table_schema !~ '^information_schema|catalog_history|pg_' order by 1",
    "metabase enums": "select nspname, typname, enumlabel from pg_type inner join pg_enum on pg_enum.enumtypid = pg_type.oid"
    " join pg_namespace on pg_namespace.oid = pg_type.typnamespace",
    "metabase foreign keys": "select fk_ns.nspname, fk_table.relname, fk_column.attname from pg_constraint c join pg_class fk_table"
    " on c.conrelid = fk_table.oid join pg_namespace fk_ns on c.connamespace = fk_ns.oid join pg_attribute fk_column"
    " on c.conrelid = fk_column.attrelid where c.contype = 'f'::char and fk_column.attnum = any(c.conkey)",
    "metabase time zone": "select current_setting('timezone') as tz, now()::timestamptz, to_char(current_timestamp, 'YYYY-MM-DD')",
    "dbeaver databases": "select db.oid, db.* from pg_catalog.pg_database db where 1 = 1 and datallowconn and not datistemplate"
    " or db.datname = 'kinds' order by db.datname",
    "dbeaver schemas": "select n.oid, n.*, d.description from pg_catalog.pg_namespace n left outer join pg_catalog.pg_description d"
    " on d.objoid = n.oid and d.objsubid = 0 and d.classoid = 'pg_namespace'::regclass order by nspname",
    "dbeaver types": "select t.oid, t.*, c.relkind, format_type(nullif(t.typbasetype, 0), t.typtypmod) as base_type_name, d.description"
    " from pg_catalog.pg_type t left outer join pg_catalog.pg_type et on et.oid = t.typelem left outer join pg_catalog.pg_class c"
    " on c.oid = t.typrelid left outer join pg_catalog.pg_description d on t.oid = d.objoid where t.typname is not null"
    " and (c.relkind is null or c.relkind = 'c') and (et.typcategory is null or et.typcategory <> 'C')",
    "dbeaver tables": "select c.oid, c.*, d.description, pg_catalog.pg_get_expr(c.relpartbound, c.oid) as partition_expr,"
    " pg_catalog.pg_get_partkeydef(c.oid) as partition_key from pg_catalog.pg_class c left outer join pg_catalog.pg_description d"
    " on d.objoid = c.oid and d.objsubid = 0 and d.classoid = 'pg_class'::regclass where c.relnamespace = 2200"
    " and c.relkind not in ('i', 'I', 'c')",
    "dbeaver columns": "select c.relname, a.*, pg_catalog.pg_get_expr(ad.adbin, ad.adrelid, true) as def_value, dsc.description, dep.objid"
    " from pg_catalog.pg_attribute a inner join pg_catalog.pg_class c on (a.attrelid = c.oid) left outer join pg_catalog.pg_attrdef ad"
    " on (a.attrelid = ad.adrelid and a.attnum = ad.adnum) left outer join pg_catalog.pg_description dsc on (c.oid = dsc.objoid"
    " and a.attnum = dsc.objsubid) left outer join pg_depend dep on dep.refobjid = a.attrelid and dep.deptype = 'i'"
    " and dep.refobjsubid = a.attnum and dep.classid = dep.refclassid where not a.attisdropped and c.relkind not in ('i', 'I', 'c')"
    " and c.oid = 16384 order by a.attnum",
    "dbeaver role": "select * from pg_catalog.pg_roles order by rolname",
    "dbeaver settings": "select * from pg_catalog.pg_settings where name = 'standard_conforming_strings'",
    "dbeaver session": "select current_schema(), session_user, version(), pg_backend_pid()",
    "jdbc columns": "select * from (select current_database() as current_database, n.nspname, c.relname, a.attname, a.atttypid,"
    " a.attnotnull or (t.typtype = 'd' and t.typnotnull) as attnotnull, a.atttypmod, a.attlen, t.typtypmod, row_number() over"
    " (partition by a.attrelid order by a.attnum) as attnum, nullif(a.attidentity, '') as attidentity, null as attgenerated,"
    " pg_catalog.pg_get_expr(def.adbin, def.adrelid) as adsrc, dsc.description, t.typbasetype, t.typtype from pg_catalog.pg_namespace n"
    " join pg_catalog.pg_class c on (c.relnamespace = n.oid) join pg_catalog.pg_attribute a on (a.attrelid = c.oid) join pg_catalog.pg_type t"
    " on (a.atttypid = t.oid) left join pg_catalog.pg_attrdef def on (a.attrelid = def.adrelid and a.attnum = def.adnum)"
    " left join pg_catalog.pg_description dsc on (c.oid = dsc.objoid and a.attnum = dsc.objsubid) left join pg_catalog.pg_class dc"
    " on (dc.oid = dsc.classoid and dc.relname = 'pg_class') where c.relkind in ('r', 'p', 'v', 'f', 'm') and a.attnum > 0"
    " and not a.attisdropped and n.nspname like 'public') c where true order by nspname, c.relname, attnum",
    "jdbc keys": "select result.a_attnum, (result.keys).x, (result.keys).n from (select information_schema._pg_expandarray(i.indkey) as keys,"
    " a.attnum as a_attnum from pg_catalog.pg_class ct join pg_catalog.pg_attribute a on (ct.oid = a.attrelid) join pg_catalog.pg_index i"
    " on (a.attrelid = i.indrelid) where i.indisprimary) result where result.a_attnum = (result.keys).x",
    "psycopg type": "select typname, oid, typarray, oid::regtype::text, typdelim from pg_type t where t.oid = to_regtype('int4')",
}  # fmt: skip
SOME_ROWS = (
    "tables",
    "columns",
    "version",
    "schemas",
    "databases",
    "types",
    "role",
    "settings",
    "session",
    "privileges",
    "time",
    "type",
)
"""What a query is about that has rows here."""


@pytest.mark.parametrize("name", NAMED)
def test_catalog_queries_of_tools(connect: Connect, name: str) -> None:
    found = connect().execute(NAMED[name].replace("%", "%%")).fetchall()
    assert found or not name.split()[1].startswith(SOME_ROWS)


def test_the_catalogs_have_the_columns_of_dead_letters(connect: Connect) -> None:
    """As a SELECT describes them, so that a tool may show either."""
    connection = connect()
    columns = connection.execute(
        "select column_name, udt_name from information_schema.columns where table_name = 'dead_letters' order by ordinal_position"
    ).fetchall()
    described = connection.execute("select * from dead_letters").description or ()
    names = dict(connection.execute("select oid, typname from pg_type").fetchall())
    assert columns == [(each.name, names[each.type_code]) for each in described]
    assert [name for name, _ in columns] == list(RELATION.names)


def test_psql_describes_everything(server: Any) -> None:
    psql = shutil.which("psql")
    if psql is None:
        pytest.skip("needs psql")
    host, port = server.address
    asked = [part for command in COMMANDS for part in ("-c", command)]
    found = subprocess.run(
        [psql, "-X", "-d", f"postgresql://me@{host}:{port}/kinds", *asked], capture_output=True, text=True, timeout=120, check=False
    )  # fmt: skip
    errors = [line for line in found.stderr.splitlines() if not line.startswith("Did not find any ")]
    assert errors == []
    shown = [" ".join(line.split()) for line in found.stdout.splitlines()]
    for line in (
        "public | per_customer | table | dbsp",
        "orders | bigint | | not null |",
        "exact | numeric(20,4) | | | | main | |",
        "instant | timestamp with time zone | | |",
    ):
        assert any(row.startswith(line.partition(" | | | |")[0]) for row in shown), line


def test_sqlalchemy_reflects_and_selects(server: Any) -> None:
    sa = pytest.importorskip("sqlalchemy", reason="needs SQLAlchemy: pip install -e '.[test]'")
    host, port = server.address
    engine = sa.create_engine(f"postgresql+psycopg://me@{host}:{port}/kinds")
    inspector = sa.inspect(engine)
    assert inspector.default_schema_name == "public"
    assert sorted(inspector.get_table_names()) == ["all_kinds", "dead_letters", "large", "per_customer", "spent"]
    assert [(each["name"], str(each["type"]), each["nullable"]) for each in inspector.get_columns("per_customer")] == [
        ("customer", "TEXT", True), ("orders", "BIGINT", False), ("amount", "BIGINT", True),
    ]  # fmt: skip
    assert inspector.get_pk_constraint("large")["constrained_columns"] == []
    assert (inspector.get_indexes("large"), inspector.get_foreign_keys("large"), inspector.get_view_names()) == (
        [],
        [],
        [],
    )
    tables = sa.MetaData()
    tables.reflect(engine)
    orders = tables.tables["per_customer"]
    asked = (
        sa.select(orders.c.customer, sa.func.sum(orders.c.amount))
        .where(orders.c.orders >= 1)
        .group_by(orders.c.customer)
    )
    with engine.connect() as connection:
        assert connection.execute(asked.order_by(orders.c.customer).limit(5)).fetchall() == [("a", 10), ("b", 600)]
        with pytest.raises(sa.exc.DBAPIError, match="coordinator push"):
            connection.execute(sa.insert(orders).values(customer="z"))
    engine.dispose()


def test_columns_have_the_names_that_postgresql_gives_them(connect: Connect) -> None:
    sql = (
        "select to_char(now(), 'YYYY'), date_trunc('day', now()), string_agg(customer, ','), count(*) filter (where true),"
        " now(), current_timestamp, row_number() over (), coalesce(max(customer), ''), to_timestamp(3), version(),"
        " extract(year from now()), 1 + 1, generate_series(1, 1) from per_customer"
    )
    found = connect().execute(sql)
    assert [each.name for each in found.description] == [
        "to_char", "date_trunc", "string_agg", "count", "now", "current_timestamp", "row_number", "coalesce", "to_timestamp",
        "version", "extract", "?column?", "generate_series",
    ]  # fmt: skip
    assert found.fetchone()[9].startswith("PostgreSQL ")
