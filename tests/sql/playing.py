"""Random SELECTs of a small grammar over small tables with nulls, and a life of both: ours in steps, DuckDB's at every step."""

from __future__ import annotations

import math
from collections import Counter
from random import Random
from typing import Any

import pyarrow as pa

import dbsp
from tests import duck

TABLES = {
    "t": dbsp.table("t", {"id": dbsp.INT64, "k": dbsp.STRING, "a": dbsp.INT64, "b": dbsp.INT64}),
    "u": dbsp.table("u", {"k": dbsp.STRING, "c": dbsp.INT64, "a": dbsp.INT64}),
}
Changes = list[tuple[str, tuple[Any, ...], bool]]


def row(chance: Random, table: str) -> tuple[Any, ...]:
    def maybe(value: Any) -> Any:
        return None if chance.random() < 0.25 else value

    k, small = maybe(chance.choice("xyz")), maybe(chance.randrange(3))
    if table == "u":
        return k, small, maybe(chance.randrange(3))
    return chance.randrange(1000), k, small, maybe(chance.randrange(-3, 4))


def life(chance: Random, steps: int = 3) -> list[Changes]:
    """What comes and goes in each step; only what is there goes."""
    held: dict[str, list[tuple[Any, ...]]] = {name: [] for name in TABLES}
    found = []
    for _ in range(steps):
        changes: Changes = []
        for _ in range(chance.randrange(1, 9)):
            table = chance.choice("tu")
            if held[table] and chance.random() < 0.35:
                gone = held[table].pop(chance.randrange(len(held[table])))
                changes.append((table, gone, False))
            else:
                held[table].append(row(chance, table))
                changes.append((table, held[table][-1], True))
        found.append(changes)
    return found


def select(chance: Random) -> str:
    """A query; its columns are numbers and texts that do not depend on the order of rows."""
    pick = chance.choice
    shape = chance.randrange(8)
    if shape == 0:
        one, other = (f"select k, a from {name}{where(chance, name)}" for name in "tu")
        return f"{one} {pick(['union', 'union all', 'except', 'except all', 'intersect', 'intersect all'])} {other}"
    if shape == 1:
        partition = pick(["", "partition by k "])
        call = pick(["row_number()", "lag(a)", "lead(b, 1, 0)", "count(a)", "sum(b)", "rank()", "min(a)"])
        framed = call.startswith(("count", "sum", "min")) and chance.random() < 0.5
        frame = " rows between 1 preceding and current row" if framed else ""
        return f"select id, k, {call} over ({partition}order by id{frame}) as w from t{where(chance, 't')}"
    source, names = from_(chance)
    if shape in (2, 3, 4):
        keys = chance.sample(["t.k", "t.a", "t.b % 2", "coalesce(t.a, 7)"], chance.randrange(3))
        calls = [aggregate(chance, names) for _ in range(chance.randrange(1, 3))]
        columns = ", ".join(f"{column} as c{at}" for at, column in enumerate([*keys, *calls]))
        having = f" having {aggregate(chance, names)} >= 1" if keys and chance.random() < 0.4 else ""
        group = f" group by {', '.join(keys)}" if keys else ""
        if len(keys) > 1 and chance.random() < 0.3:
            group = f" group by rollup({', '.join(keys)})"
        return f"select {columns} from {source}{where(chance, names)}{group}{having}"
    columns = ", ".join(f"{value(chance, names)} as c{at}" for at in range(chance.randrange(1, 4)))
    distinct = pick(["", "", "distinct "])
    ordered = ""
    if chance.random() < 0.25:
        ordered = (
            f" order by {', '.join(str(at + 1) for at in range(columns.count(' as c')))} limit {chance.randrange(4)}"
        )
    return f"select {distinct}{columns} from {source}{where(chance, names)}{ordered}"


def from_(chance: Random) -> tuple[str, str]:
    """A FROM, and the names of its relations."""
    on = chance.choice(["t.k = u.k", "t.a = u.c", "t.k = u.k and t.a = u.a"])
    further = chance.choice(["", " and t.b > 0", " and u.c < 2", " and t.b <= u.c"])
    match chance.randrange(6):
        case 0:
            return "t", "t"
        case 1:
            return f"t join u on {on}{further}", "tu"
        case 2 | 3:
            return f"t {chance.choice(['left', 'right', 'full'])} join u on {on}{further}", "tu"
        case 4:
            return (
                "(select * from t where a is not null) as t, (select k, max(c) as c, min(a) as a from u group by k) as u",
                "tu",
            )
        case _:
            return "t join u using (k)", "tu"


def where(chance: Random, names: str) -> str:
    if chance.random() < 0.4:
        return ""
    parts = [condition(chance, names) for _ in range(chance.randrange(1, 3))]
    return f" where {chance.choice([' and ', ' or ']).join(parts)}"


def condition(chance: Random, names: str) -> str:  # noqa: PLR0911 (one per kind)
    pick = chance.choice
    of = pick(names)
    not_ = pick(["", "not "])
    match chance.randrange(9):
        case 0:
            return f"{value(chance, names)} {pick(['<', '<=', '=', '<>', '>'])} {value(chance, names)}"
        case 1:
            return f"{of}.k {not_}in ('x', 'y')"
        case 2:
            return f"{of}.a {not_}in (select c from u as i)"
        case 3:
            return f"{of}.a {not_}in (select c from u as i where i.k = {of}.k)"
        case 4:
            return f"{not_}exists (select 1 from u as i where i.k = {of}.k)"
        case 5:
            return f"{not_}({of}.a between 0 and 1)"
        case 6:
            return f"{of}.a is {not_}null"
        case 7:
            return f"{of}.a >= (select {pick(['min(c)', 'count(*)', 'sum(c) + 1'])} from u as i where i.k = {of}.k)"
        case _:
            return f"{of}.a < (select max(c) from u as i)"


def value(chance: Random, names: str) -> str:
    of = chance.choice(names)
    own = [
        "t.b",
        "t.a + t.b",
        "t.a * 2 - 1",
        "t.b % 2",
        "t.b // 2",
        "case when t.b > 0 then t.a else t.b end",
        "abs(t.b)",
    ]
    shared = [f"{of}.a", f"coalesce({of}.a, 5)", f"length({of}.k)", f"nullif({of}.a, 1)", f"greatest({of}.a, 1)"]
    return chance.choice([*shared, *(own if "t" in names else ["u.c", "u.c + u.a"])])


def aggregate(chance: Random, names: str) -> str:
    pick = chance.choice
    argument = value(chance, names)
    made = pick(
        ["count(*)", f"count({argument})", f"count(distinct {argument})", f"sum({argument})", f"min({argument})"]
    )
    filtered = f" filter (where {argument} > 0)" if chance.random() < 0.3 else ""
    return f"{made}{filtered}"


def differences(text: str, changes: list[Changes], workers: int) -> list[tuple[Any, Any]]:
    """The steps after which our view is not DuckDB's answer: ours and its."""
    circuit = dbsp.circuit("v", {"v": dbsp.sql(text, **TABLES)})
    read = {table.name for table in circuit.tables}
    held: dict[str, list[tuple[Any, ...]]] = {name: [] for name in TABLES}
    found = []
    with dbsp.open(circuit, workers=workers) as run, duck.connect() as connection:
        for step in changes:
            for table, values, comes in step:
                (held[table].append if comes else held[table].remove)(values)
                if table in read:
                    given = [dict(zip(TABLES[table].columns, values, strict=True))]
                    (run.push if comes else run.delete)(table, given)
            run.step()
            for name, stream in TABLES.items():
                rows = [dict(zip(stream.columns, values, strict=True)) for values in held[name]]
                connection.register(name, pa.Table.from_pylist(rows, schema=stream.schema.to_arrow()))
            ours = counted(run.view("v").to_arrow())
            theirs = counted(connection.sql(text).to_arrow_table())
            if ours != theirs:
                found.append((ours, theirs))
        assert not run.dead_letters(), [letter.reason for letter in run.dead_letters()]
    return found


def counted(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(
        tuple(map(plain, row)) for row in zip(*(column.to_pylist() for column in table.columns), strict=True)
    )


def plain(value: Any) -> Any:
    return float(f"{value:.9g}") if isinstance(value, float) and math.isfinite(value) else value
