"""Functions of PostgreSQL that tools call and DuckDB lacks, as macros of DuckDB; only those that a statement calls are made.

They describe a database with one owner, whose relations everybody can read and nobody can write.
"""

from __future__ import annotations

from collections.abc import Mapping

from dbsp.coordinator.query.pg_types import OIDS, TYPE_NAMES
from dbsp.coordinator.query.quoting import literal

CONSTANTS: Mapping[str, str] = {
    "current_database": "current_database", "current_catalog": "current_database", "current_schema": "current_schema",
    "current_user": "current_user", "session_user": "current_user", "user": "current_user", "version": "version",
}  # fmt: skip
"""Functions whose result is a fact of the session, by the expression that replaces the call."""

RENAMED: Mapping[str, str] = {
    "json_build_object": "json_object", "jsonb_build_object": "json_object", "json_build_array": "json_array",
    "json_agg": "json_group_array", "jsonb_agg": "json_group_array", "regexp_like": "regexp_matches",
}  # fmt: skip
"""PostgreSQL's functions that DuckDB has under another name."""


def _cases(pairs: Mapping[object, object], subject: str, other: str) -> str:
    def quoted(value: object) -> str:
        return str(value) if isinstance(value, int) else literal(str(value))

    whens = " ".join(f"WHEN {quoted(key)} THEN {quoted(value)}" for key, value in pairs.items())
    return f"CASE {subject} {whens} ELSE {other} END"


def _nothing(*counts: int) -> tuple[str, ...]:
    return tuple(f"({', '.join(f'a{place}' for place in range(count))}) AS CAST(NULL AS VARCHAR)" for count in counts)


def _always(value: str, *counts: int) -> tuple[str, ...]:
    return tuple(f"({', '.join(f'a{place}' for place in range(count))}) AS {value}" for count in counts)


_READ_ONLY = "regexp_matches(upper({}), '^(SELECT|USAGE|CONNECT|EXECUTE|MEMBER)')"
_PRIVILEGE = (f"(a, b) AS {_READ_ONLY.format('b')}", f"(a, b, c) AS {_READ_ONLY.format('c')}")
_COLUMN_PRIVILEGE = (f"(a, b, c) AS {_READ_ONLY.format('c')}", f"(a, b, c, d) AS {_READ_ONLY.format('d')}")

_BODIES: Mapping[str, tuple[str, ...]] = {
    "format_type": (
        "(a, b) AS CASE WHEN a = 1700 AND b >= 4 THEN 'numeric(' || (((b - 4) >> 16) & 65535) || ',' || ((b - 4) & 65535) || ')'"
        f" ELSE {_cases(TYPE_NAMES, 'a', 'NULL')} END",
    ),
    "type_oid": (f"(a) AS CAST({_cases(OIDS, 'lower(a)', 'NULL')} AS BIGINT)",),
    "to_regtype": (f"(a) AS CAST({_cases(OIDS, 'lower(a)', 'NULL')} AS BIGINT)",),
    "bare_name": (
        "(a) AS replace(CASE WHEN regexp_matches(a, '^\"?(public|pg_catalog|information_schema)\"?\\.')"
        " THEN regexp_replace(a, '^[^.]*\\.', '') ELSE a END, '\"', '')",
    ),
    "pg_get_userbyid": ("(a) AS 'dbsp'",),
    "pg_table_is_visible": ("(a) AS true",),
    "pg_type_is_visible": ("(a) AS true",),
    "pg_function_is_visible": ("(a) AS true",),
    "pg_is_other_temp_schema": ("(a) AS false",),
    "pg_is_in_recovery": ("() AS false",),
    "pg_my_temp_schema": ("() AS 0",),
    "pg_backend_pid": ("() AS 1",),
    "pg_relation_is_publishable": ("(a) AS false",),
    "pg_relation_size": _always("CAST(0 AS BIGINT)", 1, 2),
    "pg_total_relation_size": _always("CAST(0 AS BIGINT)", 1),
    "pg_table_size": _always("CAST(0 AS BIGINT)", 1),
    "pg_indexes_size": _always("CAST(0 AS BIGINT)", 1),
    "pg_database_size": _always("CAST(0 AS BIGINT)", 1),
    "pg_tablespace_size": _always("CAST(0 AS BIGINT)", 1),
    "pg_size_pretty": ("(a) AS CAST(a AS VARCHAR) || ' bytes'",),
    "pg_encoding_to_char": ("(a) AS 'UTF8'",),
    "pg_client_encoding": ("() AS 'UTF8'",),
    "getdatabaseencoding": ("() AS 'UTF8'",),
    "pg_char_to_encoding": ("(a) AS 6",),
    "obj_description": _nothing(1, 2),
    "col_description": _nothing(2),
    "shobj_description": _nothing(2),
    "pg_get_expr": _nothing(2, 3),
    "pg_get_viewdef": _nothing(1, 2),
    "pg_get_ruledef": _nothing(1, 2),
    "pg_get_indexdef": _nothing(1, 3),
    "pg_get_constraintdef": _nothing(1, 2),
    "pg_get_triggerdef": _nothing(1, 2),
    "pg_get_functiondef": _nothing(1),
    "pg_get_function_result": _nothing(1),
    "pg_get_function_arguments": _nothing(1),
    "pg_get_function_identity_arguments": _nothing(1),
    "pg_get_function_sqlbody": _nothing(1),
    "pg_get_partkeydef": _nothing(1),
    "pg_get_partition_constraintdef": _nothing(1),
    "pg_get_statisticsobjdef": _nothing(1),
    "pg_get_statisticsobjdef_columns": _nothing(1),
    "pg_get_serial_sequence": _nothing(2),
    "pg_get_replica_identity_index": ("(a) AS CAST(NULL AS BIGINT)",),
    "pg_tablespace_location": _nothing(1),
    "pg_describe_object": _nothing(3),
    "pg_options_to_table": _nothing(1),
    "pg_partition_ancestors": ("(a) AS a",),
    "pg_index_column_has_property": ("(a, b, c) AS false",),
    "pg_indexam_has_property": ("(a, b) AS false",),
    "pg_postmaster_start_time": ("() AS CAST(NULL AS TIMESTAMP WITH TIME ZONE)",),
    "pg_stat_get_numscans": _always("CAST(0 AS BIGINT)", 1),
    "txid_current": ("() AS CAST(1 AS BIGINT)",),
    "has_table_privilege": _PRIVILEGE,
    "has_any_column_privilege": _PRIVILEGE,
    "has_schema_privilege": _PRIVILEGE,
    "has_database_privilege": _PRIVILEGE,
    "has_function_privilege": _PRIVILEGE,
    "has_sequence_privilege": _PRIVILEGE,
    "has_tablespace_privilege": _PRIVILEGE,
    "has_type_privilege": _PRIVILEGE,
    "has_language_privilege": _PRIVILEGE,
    "has_server_privilege": _PRIVILEGE,
    "has_foreign_data_wrapper_privilege": _PRIVILEGE,
    "has_column_privilege": _COLUMN_PRIVILEGE,
    "pg_has_role": ("(a, b) AS true", "(a, b, c) AS true"),
    "row_security_active": ("(a) AS false",),
    "current_schemas": ("(a) AS CASE WHEN a THEN ['pg_catalog', 'public'] ELSE ['public'] END",),
    "quote_ident": (
        "(a) AS CASE WHEN regexp_matches(a, '^[a-z_][a-z0-9_$]*$') THEN a ELSE '\"' || replace(a, '\"', '\"\"') || '\"' END",
    ),
    "quote_literal": ("(a) AS '''' || replace(CAST(a AS VARCHAR), '''', '''''') || ''''",),
    "array_lower": ("(a, b) AS CASE WHEN b = 1 AND len(a) > 0 THEN 1 END",),
    "array_upper": ("(a, b) AS CASE WHEN b = 1 AND len(a) > 0 THEN len(a) END",),
    "array_ndims": ("(a) AS CASE WHEN len(a) > 0 THEN 1 END",),
    "inet_server_addr": _nothing(0),
    "inet_client_addr": _nothing(0),
    "inet_server_port": ("() AS CAST(NULL AS INTEGER)",),
    "pg_show_all_settings": _nothing(0),
    "_pg_expandarray": ("(a) AS unnest([{'x': x, 'n': n} for x, n in a])",),
    "_pg_truetypid": ("(a, b) AS a",),
    "aclexplode": (
        "(a) AS CAST(NULL AS STRUCT(grantor BIGINT, grantee BIGINT, privilege_type VARCHAR, is_grantable BOOLEAN))",
    ),
    "acldefault": ("(a, b) AS CAST(NULL AS VARCHAR[])",),
    "pg_statistics_obj_is_visible": ("(a) AS true",),
    "pg_opclass_is_visible": ("(a) AS true",),
    "pg_operator_is_visible": ("(a) AS true",),
    "pg_collation_is_visible": ("(a) AS true",),
    "pg_conversion_is_visible": ("(a) AS true",),
    "pg_ts_config_is_visible": ("(a) AS true",),
    "pg_ts_dict_is_visible": ("(a) AS true",),
    "pg_advisory_unlock_all": _nothing(0),
    "array_remove": ("(a, b) AS list_filter(a, lambda x: x IS DISTINCT FROM b)",),
    "format": (
        "(a) AS a",
        "(a, b) AS printf(replace(a, '%I', '%s'), CAST(b AS VARCHAR))",
        "(a, b, c) AS printf(replace(a, '%I', '%s'), CAST(b AS VARCHAR), CAST(c AS VARCHAR))",
        "(a, b, c, d) AS printf(replace(a, '%I', '%s'), CAST(b AS VARCHAR), CAST(c AS VARCHAR), CAST(d AS VARCHAR))",
    ),
    "timezone": ("(a, b) AS b AT TIME ZONE a",),
    "statement_timestamp": ("() AS now()",),
    "clock_timestamp": ("() AS now()",),
}


def renamed(name: str) -> str:
    """Return the macro's name, which no function of DuckDB has."""
    return f"pg__{name}"


MACROS: Mapping[str, str] = {
    name: f"CREATE MACRO {renamed(name)} {', '.join(bodies)}" for name, bodies in _BODIES.items()
}
"""PostgreSQL's functions that DuckDB lacks, by the statement that defines each as a macro."""
