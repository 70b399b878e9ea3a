"""Entry points of SQL: `sql` lowers one SELECT, `sql_circuit` a script. They import sqlglot, an extra, when they are
called.
"""

from __future__ import annotations

from pathlib import Path

from dbsp.circuit.circuit import Circuit
from dbsp.diagnostics.source_lines import located, user_line
from dbsp.errors import CircuitError, ConfigError
from dbsp.expr.walking import deep
from dbsp.sql.errors import Script, reported
from dbsp.sql.parsing import parser, statements_of
from dbsp.stream.handle import Handle
from dbsp.stream.stream import Stream


def sql(text: str, **tables: Stream) -> Stream:
    """Return the rows of a SELECT in DuckDB's dialect as a stream; the keywords name the tables of FROM.

    **Law** The view equals DuckDB's result on the current tables. What the dialect lacks is refused, with its line and column and
    what to write instead; docs/sql.md lists the dialect.

    **State**, **Cost** Those of the methods that the query is lowered to: `stream.explain()` shows them.

    **Errors** `ConfigError` without sqlglot, which is in the extra `sql`. `CircuitError` for a faulty query.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "x": dbsp.INT64})
    >>> totals = dbsp.sql("select k, sum(x) as total from t group by k having count(*) > 1", t=t)
    >>> with dbsp.open(dbsp.circuit("demo", {"totals": totals})) as run:
    ...     run.push("t", [{"k": "a", "x": 1}, {"k": "a", "x": 2}, {"k": "b", "x": 5}])
    ...     print(run.step()["totals"].to_rows())
    ...     run.delete("t", [{"k": "a", "x": 2}])
    ...     print(run.step()["totals"].to_rows())
    [(('a', 3), 1)]
    [(('a', 3), -1)]
    """
    source = user_line()
    parser()
    from dbsp.sql.queries import rows_of  # noqa: PLC0415 (sqlglot is an extra)
    from dbsp.sql.scope import QueryRows  # noqa: PLC0415 (with it)

    script = Script(text)
    with deep():
        found = statements_of(script, source)
        if len(found) != 1:
            raise CircuitError(
                f"sql takes one query: statements={len(found)}", "a script is dbsp.sql_circuit(name, script)"
            )
        for name, stream in tables.items():
            if not isinstance(stream, Handle):
                raise CircuitError(
                    f"not a stream: table={name} got={type(stream).__name__}", "give what dbsp.table returned"
                )
        with reported(script, source):
            return rows_of(found[0], {name: QueryRows(stream) for name, stream in tables.items()}).stream


def sql_circuit(name: str, script: str, file: str | None = None, error_policy: str = "dead-letter") -> Circuit:
    """Return the circuit of a script: its tables, and its views.

    **Shape** A table is written `CREATE TABLE t (k VARCHAR NOT NULL, x BIGINT, PRIMARY KEY (k)) WITH (append_only =
    true)`. A `CREATE MATERIALIZED VIEW v AS SELECT …` can be read and emits its changes; a `CREATE VIEW` emits its
    changes alone. A `CREATE TEMP VIEW` only names a query for later statements. The setting `SET error_policy = 'stop'`
    is that of `dbsp.circuit`.

    **Errors** `CircuitError` with the file, or `sql`, line and column.

    **Example**

    >>> import dbsp
    >>> shop = dbsp.sql_circuit("shop", '''
    ...     create table sales (item varchar, euros bigint);
    ...     create materialized view best as
    ...       select item, sum(euros) as total from sales group by item order by total desc limit 1;
    ... ''')
    >>> with dbsp.open(shop) as run:
    ...     run.push("sales", [{"item": "tea", "euros": 3}, {"item": "mate", "euros": 5}])
    ...     print(run.step()["best"].to_rows())
    ...     run.delete("sales", [{"item": "mate", "euros": 5}])
    ...     print(run.step()["best"].to_rows())
    [(('mate', 5), 1)]
    [(('mate', 5), -1), (('tea', 3), 1)]
    """
    source = user_line()
    parser()
    from dbsp.sql.scripts import circuit_of  # noqa: PLC0415 (sqlglot is an extra)

    text = Script(script, file)
    with located(source if file is None else None), deep():
        return circuit_of(name, text, statements_of(text, source), error_policy, source)


def circuit_of_file(path: Path) -> Circuit:
    """Return the circuit of a script file, named after the file; raise `ConfigError` if the file is absent or not UTF-8."""
    try:
        text = path.read_text(encoding="utf-8").removeprefix("\ufeff")  # editors' byte order mark
    except FileNotFoundError:
        raise ConfigError(
            f"the circuit's file does not exist: file={path}", 'write circuit = "path/to/file.sql"'
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"the circuit's file is not UTF-8: file={path} position={error.start}") from None
    return sql_circuit(path.stem, text, str(path))
