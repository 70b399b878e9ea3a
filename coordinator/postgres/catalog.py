"""Make the catalogs that tools read, `pg_catalog` and `information_schema`, as relations besides the views.

Views are shown as ordinary tables of the schema `public`: tools offer those for reading, and many leave out everything
else. One role owns all relations. Relations of objects that do not exist here, such as indexes, are empty and have
PostgreSQL's columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from dbsp.coordinator.postgres.variables import Variables
from dbsp.coordinator.query import pg_types as t
from dbsp.coordinator.query.pg_types import ARRAYS, SCALARS, PgType, modifier_of, type_of

RELATIONS = Path(__file__).with_name("relations.txt")
OWNER, OWNER_NAME = 10, "dbsp"
PG_CATALOG, PUBLIC, INFORMATION = 11, 2200, 13_183
HEAP, TABLESPACE, DATABASE = 2, 1663, 16_383
FIRST_VIEW = 16_384
PUBLIC_NAME = "public"
_ARROW: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(), "smallint": pa.int16(), "integer": pa.int32(), "bigint": pa.int64(), "oid": pa.int64(),
    "xid": pa.int64(), "real": pa.float32(), "double precision": pa.float64(), "numeric": pa.float64(),
    "timestamptz": pa.timestamp("us", "UTC"), "time_stamp": pa.timestamp("us", "UTC"), "cardinal_number": pa.int32(),
    "regtype": pa.int64(), "bytea": pa.binary(), "int2vector": pa.list_(pa.int16()), "oidvector": pa.list_(pa.int64()),
}  # fmt: skip
KEYWORDS = ("analyse", "analyze", "concurrently", "freeze", "ilike", "isnull", "limit", "notnull", "offset", "verbose")
"""Words that PostgreSQL reserves and the standard does not."""
Row = dict[str, Any]


def relations_of(database: str, views: Mapping[str, pa.Schema]) -> dict[str, pa.Table]:
    """Return the relations of the catalogs by their full names, for these views."""
    rows = {**_server(database), **_classes(views), **_information(database, views)}
    return {name: _table(name, columns, rows.get(name, ())) for name, columns in _columns().items()}


def _columns() -> dict[str, pa.Schema]:
    found = {}
    for line in RELATIONS.read_text(encoding="ascii").splitlines():
        if line.startswith("#"):
            continue
        name, _, columns = line.partition(" = ")
        pairs = [column.split(" ", 1) for column in columns.split(", ")]
        found[name] = pa.schema([(column, _arrow(type_)) for column, type_ in pairs])
    return found


def _arrow(type_: str) -> pa.DataType:
    return pa.list_(_arrow(type_[:-2])) if type_.endswith("[]") else _ARROW.get(type_, pa.string())


def _table(name: str, schema: pa.Schema, rows: Iterable[Row]) -> pa.Table:
    """Return a relation from rows; a column that a row lacks is null, in `pg_catalog` 0 or false."""
    rows = list(rows)
    columns = []
    for field in schema:
        usual = False if field.type == pa.bool_() else 0 if pa.types.is_integer(field.type) else None
        usual = usual if name.startswith("pg_catalog.") else None
        columns.append(pa.array([row.get(field.name, usual) for row in rows], field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _server(database: str) -> dict[str, Iterable[Row]]:
    """Return the relations about the server: types, schemas, the database, the role, settings."""
    role = {
        "rolname": OWNER_NAME, "oid": OWNER, "rolinherit": True, "rolcanlogin": True, "rolconnlimit": -1,
        "usename": OWNER_NAME, "usesysid": OWNER,
    }  # fmt: skip
    namespaces = ((PG_CATALOG, "pg_catalog"), (PUBLIC, PUBLIC_NAME), (INFORMATION, "information_schema"))
    return {
        "pg_catalog.pg_type": [_type_row(each) for each in (*SCALARS, *ARRAYS)],
        "pg_catalog.pg_namespace": [{"oid": oid, "nspname": name, "nspowner": OWNER} for oid, name in namespaces],
        "pg_catalog.pg_database": [
            {
                "oid": DATABASE, "datname": database, "datdba": OWNER, "encoding": 6, "datlocprovider": "c",
                "datallowconn": True, "datconnlimit": -1, "dattablespace": TABLESPACE, "datcollate": "C", "datctype": "C",
            }
        ],
        "pg_catalog.pg_roles": [role], "pg_catalog.pg_authid": [role], "pg_catalog.pg_user": [role],
        "pg_catalog.pg_am": [{"oid": HEAP, "amname": "heap", "amhandler": "heap_tableam_handler", "amtype": "t"}],
        "pg_catalog.pg_tablespace": [{"oid": TABLESPACE, "spcname": "pg_default", "spcowner": OWNER}],
        "pg_catalog.pg_get_keywords": [{"word": word, "catcode": "R", "catdesc": "reserved"} for word in KEYWORDS],
        "pg_catalog.pg_timezone_names": [{"name": "UTC", "abbrev": "UTC"}],
        "pg_catalog.pg_settings": [
            {"name": name, "setting": value, "context": "user", "vartype": "string", "boot_val": value, "reset_val": value}
            for name, value in sorted(Variables({}).values.items())
        ],
        "information_schema.schemata": [
            {"catalog_name": database, "schema_name": name, "schema_owner": OWNER_NAME} for _, name in namespaces
        ],
        "information_schema.information_schema_catalog_name": [{"catalog_name": database}],
        "information_schema.enabled_roles": [{"role_name": OWNER_NAME}],
        "information_schema.character_sets": [
            {
                "character_set_name": "UTF8", "character_repertoire": "UCS", "form_of_use": "UTF8",
                "default_collate_catalog": database, "default_collate_schema": "pg_catalog", "default_collate_name": "C",
            }
        ],
    }  # fmt: skip


def _type_row(type_: PgType) -> Row:
    is_array = type_.category == "A"
    element = next((each.oid for each in SCALARS if each.array == type_.oid), 0) if is_array else 0
    return {
        "oid": type_.oid, "typname": type_.name, "typnamespace": PG_CATALOG, "typowner": OWNER, "typlen": type_.size,
        "typbyval": 0 < type_.size <= 8, "typtype": "b", "typcategory": type_.category, "typisdefined": True,  # noqa: PLR2004
        "typdelim": ",", "typelem": element, "typarray": type_.array, "typalign": "i", "typstorage": "x", "typtypmod": -1,
        "typinput": "array_in" if is_array else f"{type_.name}in", "typoutput": "array_out" if is_array else f"{type_.name}out",
        "typreceive": "array_recv" if is_array else f"{type_.name}recv", "typsend": f"{type_.name}send",
    }  # fmt: skip


def _classes(views: Mapping[str, pa.Schema]) -> dict[str, Iterable[Row]]:
    """Return the relations about the views in `pg_catalog`."""
    classes, attributes, tables = [], [], []
    for number, (view, schema) in enumerate(sorted(views.items()), FIRST_VIEW):
        classes.append(
            {
                "oid": number, "relname": view, "relnamespace": PUBLIC, "relowner": OWNER, "relam": HEAP, "relkind": "r",
                "relfilenode": number, "reltuples": -1.0, "relpersistence": "p", "relnatts": len(schema),
                "relispopulated": True, "relreplident": "d", "relacl": [f"{OWNER_NAME}=r/{OWNER_NAME}"],
            }
        )  # fmt: skip
        tables.append({"schemaname": PUBLIC_NAME, "tablename": view, "tableowner": OWNER_NAME})
        for place, field in enumerate(schema, 1):
            type_ = type_of(field.type)
            attributes.append(
                {
                    "attrelid": number, "attname": field.name, "atttypid": type_.oid, "attstattarget": -1, "attlen": type_.size,
                    "attnum": place, "attndims": int(type_.category == "A"), "attcacheoff": -1, "attalign": "i",
                    "atttypmod": modifier_of(field.type), "attstorage": "x", "attcompression": "", "attidentity": "",
                    "attgenerated": "", "attnotnull": not field.nullable, "attislocal": True,
                    "attbyval": 0 < type_.size <= 8,  # noqa: PLR2004 - a word
                }
            )  # fmt: skip
    return {"pg_catalog.pg_class": classes, "pg_catalog.pg_attribute": attributes, "pg_catalog.pg_tables": tables}


def _information(database: str, views: Mapping[str, pa.Schema]) -> dict[str, Iterable[Row]]:
    """Return the relations about the views in `information_schema`."""
    tables, columns, grants, column_grants = [], [], [], []
    for view, schema in sorted(views.items()):
        named: Row = {"table_catalog": database, "table_schema": PUBLIC_NAME, "table_name": view}
        grant: Row = {
            "grantor": OWNER_NAME, "grantee": OWNER_NAME, "privilege_type": "SELECT", "is_grantable": "NO",
            "with_hierarchy": "YES",
        }  # fmt: skip
        tables.append(named | {"table_type": "BASE TABLE", "is_insertable_into": "NO", "is_typed": "NO"})
        grants.append(named | grant)
        for place, field in enumerate(schema, 1):
            columns.append(named | _column_row(database, field, place))
            column_grants.append(named | grant | {"column_name": field.name})
    return {
        "information_schema.tables": tables, "information_schema.columns": columns,
        "information_schema.table_privileges": grants, "information_schema.role_table_grants": grants,
        "information_schema.column_privileges": column_grants, "information_schema.role_column_grants": column_grants,
    }  # fmt: skip


def _column_row(database: str, field: pa.Field, place: int) -> Row:
    type_ = type_of(field.type)
    is_decimal = pa.types.is_decimal(field.type)
    bits = {t.INT2: 16, t.INT4: 32, t.INT8: 64, t.FLOAT4: 24, t.FLOAT8: 53}.get(type_)
    whole = type_ in (t.INT2, t.INT4, t.INT8)
    return {
        "column_name": field.name, "ordinal_position": place, "is_nullable": "YES" if field.nullable else "NO",
        "data_type": "ARRAY" if type_.category == "A" else type_.title, "udt_catalog": database, "udt_schema": "pg_catalog",
        "udt_name": type_.name, "dtd_identifier": str(place), "is_self_referencing": "NO", "is_identity": "NO",
        "identity_cycle": "NO", "is_generated": "NEVER", "is_updatable": "NO", "character_maximum_length": None,
        "numeric_precision": field.type.precision if is_decimal else bits,
        "numeric_precision_radix": 10 if is_decimal else 2 if bits else None,
        "numeric_scale": field.type.scale if is_decimal else 0 if whole else None,
        "character_octet_length": (1 << 30) if type_ == t.TEXT else None, "interval_precision": None,
        "datetime_precision": 6 if type_ in (t.TIME, t.TIMESTAMP, t.TIMESTAMPTZ, t.INTERVAL) else 0 if type_ == t.DATE else None,
        "maximum_cardinality": None,
    }  # fmt: skip
