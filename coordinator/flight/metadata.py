"""Results of Flight SQL's metadata commands: catalogs, schemas, tables, kinds of tables, keys, and facts about the SQL dialect.

There is one catalog, with the pipeline's name, and one schema. Views are shown as tables, because tools offer those for reading.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from dbsp.coordinator.flight.messages import given
from dbsp.version import VERSION

SCHEMA, TABLE = "public", "TABLE"
_TEXT, _NUMBER = pa.string(), pa.int32()
CATALOGS = pa.schema([pa.field("catalog_name", _TEXT, nullable=False)])
SCHEMAS = pa.schema([pa.field("catalog_name", _TEXT), pa.field("db_schema_name", _TEXT, nullable=False)])
TABLES = pa.schema(
    [
        pa.field("catalog_name", _TEXT), pa.field("db_schema_name", _TEXT),
        pa.field("table_name", _TEXT, nullable=False), pa.field("table_type", _TEXT, nullable=False),
    ]
)  # fmt: skip
TABLE_SCHEMA = pa.field("table_schema", pa.binary(), nullable=False)
TABLE_TYPES = pa.schema([pa.field("table_type", _TEXT, nullable=False)])
PRIMARY_KEYS = pa.schema(
    [
        pa.field("catalog_name", _TEXT), pa.field("db_schema_name", _TEXT), pa.field("table_name", _TEXT, nullable=False),
        pa.field("column_name", _TEXT, nullable=False), pa.field("key_name", _TEXT),
        pa.field("key_sequence", _NUMBER, nullable=False),
    ]
)  # fmt: skip
FOREIGN_KEYS = pa.schema(
    [
        pa.field(f"{side}_{name}", _TEXT, nullable=name not in ("table_name", "column_name"))
        for side in ("pk", "fk")
        for name in ("catalog_name", "db_schema_name", "table_name", "column_name")
    ]
    + [
        pa.field("key_sequence", _NUMBER, nullable=False),
        pa.field("fk_key_name", _TEXT),
        pa.field("pk_key_name", _TEXT),
    ]
    + [pa.field(name, pa.uint8(), nullable=False) for name in ("update_rule", "delete_rule")]
)
_KINDS: Sequence[tuple[str, pa.DataType]] = (
    ("string_value", _TEXT), ("bool_value", pa.bool_()), ("bigint_value", pa.int64()), ("int32_bitmask", _NUMBER),
    ("string_list", pa.list_(_TEXT)), ("int32_to_int32_list_map", pa.map_(_NUMBER, pa.list_(_NUMBER))),
)  # fmt: skip
SQL_INFO = pa.schema(
    [
        pa.field("info_name", pa.uint32(), nullable=False),
        pa.field("value", pa.dense_union([pa.field(name, type_) for name, type_ in _KINDS]), nullable=False),
    ]
)
_FACTS: Mapping[int, str | bool | int] = {
    0: "dbsp", 1: VERSION, 2: pa.__version__,  # the server's name and version, and Arrow's
    3: True, 4: True, 5: False,  # read only; SQL; Substrait
    8: 0, 9: False, 100: 0,  # transactions: none; the action that cancels; handles never end
    500: False, 501: False, 502: False,  # making and dropping catalogs, schemas, tables
    503: 1, 504: '"', 505: 1, 506: True, 507: 0,  # names in any case; quotes; all tables are readable; nulls are largest
    513: "\\", 515: True, 516: True, 518: True, 520: True, 521: True, 523: True,
    529: "schema", 531: "database", 532: True,
}  # fmt: skip
"""The facts of `SqlInfo` by number."""


class FlightMetadata:
    """The metadata of one pipeline."""

    def __init__(self, catalog: str, views: Mapping[str, pa.Schema]) -> None:
        """Describe these views."""
        self._catalog, self._views = catalog, views

    def table(self, name: str, asked: Any) -> pa.Table | None:
        """Return the result of a metadata command; None for any other command."""
        match name:
            case "CommandGetCatalogs":
                return pa.table([[self._catalog]], schema=CATALOGS)
            case "CommandGetDbSchemas":
                return pa.table([[self._catalog], [SCHEMA]], schema=SCHEMAS).slice(0, int(self._is_asked(asked)))
            case "CommandGetTables":
                return self._tables(asked)
            case "CommandGetTableTypes":
                return pa.table([[TABLE]], schema=TABLE_TYPES)
            case "CommandGetPrimaryKeys":
                return PRIMARY_KEYS.empty_table()
            case "CommandGetExportedKeys" | "CommandGetImportedKeys":
                return FOREIGN_KEYS.empty_table()
            case "CommandGetSqlInfo":
                return sql_info(asked.info)
        return None

    def _is_asked(self, asked: Any) -> bool:
        """Return whether a command asks for what is in the schema of views."""
        return given(asked, "catalog") in (None, self._catalog) and _is_like(
            SCHEMA, given(asked, "db_schema_filter_pattern")
        )

    def _tables(self, asked: Any) -> pa.Table:
        pattern = given(asked, "table_name_filter_pattern")
        is_asked = self._is_asked(asked) and (not asked.table_types or TABLE in asked.table_types)
        names = [name for name in sorted(self._views) if is_asked and _is_like(name, pattern)]
        columns: list[Any] = [[self._catalog] * len(names), [SCHEMA] * len(names), names, [TABLE] * len(names)]
        if not asked.include_schema:
            return pa.table(columns, schema=TABLES)
        columns.append([self._views[name].serialize().to_pybytes() for name in names])
        return pa.table(columns, schema=TABLES.append(TABLE_SCHEMA))


def _is_like(name: str, pattern: str | None) -> bool:
    """Return whether a name fits a pattern of LIKE, in which a backslash takes a wildcard as it is; None fits all.

    **Example**

    >>> [_is_like("per_customer", pattern) for pattern in (None, "per%", "per\\\\_c%", "PER_", "p.*")]
    [True, True, True, False, False]
    """
    if pattern is None:
        return True
    parts = [_LIKE.get(part) or re.escape(part.removeprefix("\\")) for part in re.findall(r"(?s)\\.|.", pattern)]
    return re.fullmatch("(?s)" + "".join(parts), name) is not None


_LIKE = {"%": ".*", "_": "."}


def sql_info(wanted: Iterable[int]) -> pa.Table:
    """Return the SQL facts with these numbers, or all facts; an unknown number has no row."""
    asked = list(wanted)
    facts = {number: fact for number, fact in _FACTS.items() if not asked or number in asked}
    values: list[list[Any]] = [[] for _ in _KINDS]
    types, offsets = [], []
    for fact in facts.values():
        kind = 1 if isinstance(fact, bool) else 0 if isinstance(fact, str) else 3
        types.append(kind)
        offsets.append(len(values[kind]))
        values[kind].append(fact)
    union = pa.UnionArray.from_dense(
        pa.array(types, pa.int8()), pa.array(offsets, pa.int32()),
        [pa.array(each, type_) for each, (_, type_) in zip(values, _KINDS, strict=True)], [name for name, _ in _KINDS],
    )  # fmt: skip
    return pa.Table.from_arrays([pa.array(list(facts), pa.uint32()), union], schema=SQL_INFO)
