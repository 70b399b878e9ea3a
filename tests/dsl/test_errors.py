"""Every mistake in a circuit is answered at the user's own line, with what to write instead."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import dbsp
from dbsp.aggregates.aggregate import Aggregate
from dbsp.circuit.load import load_circuit
from dbsp.errors import CircuitError
from dbsp.expr import suggestions
from dbsp.expr.build import When
from dbsp.stream.groups import GroupSets
from dbsp.stream.window import Window
from dbsp.stream.window_functions import WindowFunction

HEAD = """\
import dbsp
from dbsp import col, lit
t = dbsp.table("t", {"id": dbsp.INT64, "name": dbsp.STRING, "delay": dbsp.INT32, "price": dbsp.decimal(8, 2),
                     "at": dbsp.TIMESTAMP, "day": dbsp.DATE, "size": dbsp.UINT64}, primary_key="id")
u = dbsp.table("u", {"id": dbsp.STRING, "name": dbsp.STRING, "code": dbsp.INT16})
"""
LINE = HEAD.count("\n") + 1

MISTAKES = {
    't.filter(col("delay") == None)': (
        "a comparison with None is never true: expression=delay at=circuit.py:LINE; write .is_null() or .is_not_null()"
    ),
    't.filter(col("delay").is_in(3))': (
        "is_in takes several constants: got=3 at=circuit.py:LINE; "
        'such as .is_in([1, 2]); rows that another stream has: .join(other, on="k", how="semi")'
    ),
    't.with_columns(x=col("day") + 1)': (
        "add does not work on these types: operands=day (date32[day]) and 1 (constant) at=circuit.py:LINE; "
        "to move a date or time add a datetime.timedelta, such as datetime.timedelta(days=1)"
    ),
    't.with_columns(x=col("delay").round(0.5))': (
        "a whole number is wanted: digits=0.5 at=circuit.py:LINE; give it as a plain int"
    ),
    't.rename("name")': 'rename takes a dict: got=\'name\' at=circuit.py:LINE; such as .rename({"old": "new"})',
    't.window("id", "at").with_columns(c=dbsp.corr("delay", "id"))': (
        "an aggregate over a window needs a frame: name=c at=circuit.py:LINE; "
        "write c=dbsp.rolling(dbsp.corr(…), rows=(None, None)) for all of a partition"
    ),
    't.window("id", "at").with_columns(c=dbsp.string_agg("name"))': (
        "an aggregate over a window needs a frame: name=c at=circuit.py:LINE; "
        "write c=dbsp.rolling(dbsp.string_agg(…), rows=(None, None)) for all of a partition"
    ),
    't.group_by("id").aggregate(x=dbsp.nth_value("name", 2))': (
        "a window function is no aggregate: name=x got=nth_value at=circuit.py:LINE; of a group it is "
        'dbsp.array_agg("x", order_by="at"), and .element(n) of it after that; '
        "beside each row it is .window(…).with_columns(x=dbsp.nth_value(…))"
    ),
    't.group_by("id").aggregate(x=dbsp.corr("delay", "name"))': (
        'corr is for numbers: argument=name type=string at=circuit.py:LINE; write dbsp.col("name").cast(dbsp.INT64) for it'
    ),
    't.aggregate(x=dbsp.avg("day"))': (
        "avg is for numbers: argument=day type=date32[day] at=circuit.py:LINE; "
        'write dbsp.avg(dbsp.col("day").epoch("second"))'
    ),
    't.filter(col("id").is_in(t.select("id")))': (
        "is_in takes several constants: got=Stream(Select (id: int64 not null)) at=circuit.py:LINE; "
        'such as .is_in([1, 2]); rows that another stream has: .join(other, on="k", how="semi")'
    ),
    't.select(x=dbsp.coalesce(col("delay") * 2, "id"))': (
        'coalesce does not work on these types: operands=(delay * 2) (int32) and "id" (constant) at=circuit.py:LINE; '
        'a text is itself here: write dbsp.col("id") for the column'
    ),
    'dbsp.lag("id", ignore_nulls="yes")': "ignore_nulls is True or False: got='yes' at=circuit.py:LINE",
    'dbsp.table("x", ["x"])': (
        'not a schema: got=[\'x\'] at=circuit.py:LINE; write one such as {"id": dbsp.INT64, "name": dbsp.STRING}'
    ),
    "dbsp.sum(3)": (
        'an aggregate takes a column name or an expression: got=3 at=circuit.py:LINE; such as dbsp.sum("x")'
    ),
    't.filter(col("delai") > 3)': 'no such column: column="delai" at=circuit.py:LINE; did you mean "delay"?',
    't["nme"]': 'no such column: column="nme" at=circuit.py:LINE; did you mean "name"?',
    't.filter(col("delay") + 1)': (
        "filter takes a condition: got=(delay + 1) type=int32 at=circuit.py:LINE; "
        "write a comparison, such as ((delay + 1)) != 0"
    ),
    't.filter(col("id") > 3, "delay > 3")': (
        "filter takes an expression: got='delay > 3' at=circuit.py:LINE; such as dbsp.col(\"x\") > 0"
    ),
    't.filter(lambda row: row["delay"] > 3)': (
        'filter takes an expression: got=a function at=circuit.py:LINE; such as dbsp.col("x") > 0'
    ),
    't.filter(col("name") > 3)': (
        "greater does not work on these types: operands=name (string) and 3 (constant) at=circuit.py:LINE; "
        "write name.cast(dbsp.INT64)"
    ),
    't.filter(col("name") == col("delay"))': (
        "equal does not work on these types: operands=name (string) and delay (int32) at=circuit.py:LINE; "
        "write name.cast(dbsp.INT32)"
    ),
    't.filter(col("size") > col("id"))': (
        "greater does not work on these types: operands=size (uint64) and id (int64) at=circuit.py:LINE; "
        "write size.cast(dbsp.decimal(20, 0)) and id.cast(dbsp.decimal(20, 0)), which holds both"
    ),
    't.filter(col("price") > 1.5)': (
        "greater does not work on these types: operands=price (decimal128(8, 2)) and 1.5 (constant) "
        'at=circuit.py:LINE; write Decimal("1.5") for the constant, or price.cast(dbsp.FLOAT64)'
    ),
    't.filter(col("delay") > 3 & col("id") > 4)': (
        "an expression is not true or false, but a value per row: expression=(delay > (3 & id)) at=circuit.py:LINE; "
        "write & for and, "
        "| for or, ~ for not, each side in brackets; .between(a, b) for a <= x <= b; .is_in([…]) for in; "
        "dbsp.when for if, dbsp.greatest and dbsp.least for max and min"
    ),
    't.filter(col("delay") & True)': (
        "and does not work on these types: operands=delay (int32) and True (constant) at=circuit.py:LINE; "
        "& | ~ join conditions: write a comparison, such as (delay != …), in brackets"
    ),
    't.with_columns(x=col("delay") // 2.5)': (
        "floor_divide does not work on these types: operands=delay (int32) and 2.5 (constant) at=circuit.py:LINE; "
        "// is for integers and decimals: write (a / b).floor()"
    ),
    't.with_columns(x=-col("size"))': (
        "negate does not work on these types: operands=size (uint64) at=circuit.py:LINE; "
        "an unsigned integer has no negative: write size.cast(dbsp.INT64)"
    ),
    't.with_columns(x=col("delay").lower())': (
        "lower does not work on these types: operands=delay (int32) at=circuit.py:LINE; "
        "it is for text: write delay.cast(dbsp.STRING)"
    ),
    't.with_columns(x=col("name").hour())': (
        "hour does not work on these types: operands=name (string) at=circuit.py:LINE; "
        "it is for times and timestamps: write name.cast(dbsp.TIMESTAMP)"
    ),
    't.with_columns(x=col("at").truncate("hours"))': (
        'no such unit for this type: unit=hours type=timestamp[us] at=circuit.py:LINE; did you mean "hour"?'
    ),
    't.with_columns(x=col("at").cast(dbsp.BOOL))': (
        "cast does not work on these types: operands=at (timestamp[us]) at=circuit.py:LINE; "
        "there is no cast from timestamp[us] to bool"
    ),
    't.with_columns(x=dbsp.when(col("delay") > 1, "a"))': (
        "a when() without otherwise() at=circuit.py:LINE; end it with .otherwise(value), or .otherwise(None) for null"
    ),
    't.with_columns(x=dbsp.when(col("delay") > 1, "a").otherwise(2))': (
        'case does not work on these types: operands="a" (constant) and 2 (constant) at=circuit.py:LINE; '
        "cast one side with .cast(type)"
    ),
    't.with_columns(x="late")': (
        'no such column: column="late" at=circuit.py:LINE; '
        'did you mean "at"?; for the text itself write dbsp.lit("late")'
    ),
    "t.with_columns(x=None)": (
        "a null constant has no type here at=circuit.py:LINE; give it one, such as dbsp.lit(None, dbsp.INT64)"
    ),
    "t.with_columns(x=[1])": (
        "not a constant that a column can hold: type=list at=circuit.py:LINE; "
        'name columns one by one, .select("id", "a"); a row per constant comes from .flat_map(function, schema={…})'
    ),
    't.with_columns(x=col("name").substr(0, 2))': (
        "positions count from 1 and lengths from 0: start=0 length=2 at=circuit.py:LINE; "
        "write .substr(1, 3) for the first three"
    ),
    't.filter(col("name").is_in([1]))': (
        "is_in compares with a constant of another type: column=name type=string value=1 at=circuit.py:LINE; "
        "give constants of dbsp.STRING, or cast the column"
    ),
    't.select(col("delay") * 2)': (
        "an expression needs a name: expression=(delay * 2) at=circuit.py:LINE; write name=(delay * 2)"
    ),
    "t.limit(3)": 'top_k needs an order at=circuit.py:LINE; such as dbsp.desc("x"); ties are broken by all columns',
    't.limit(3, by="id", partition_by=["nme"])': 'no such column: column="nme" at=circuit.py:LINE; did you mean "name"?',
    't.join(u, col("name") == col("name_right"))': (
        "an expression needs a name: expression=(name == name_right) at=circuit.py:LINE; "
        'write on="k" or on={"left": "right"} for what is equal, and where=condition for the rest, with columns as after the join'
    ),
    't.select("*")': (
        "a selection names its columns: got='*' at=circuit.py:LINE; "
        "write .with_columns(x=…) for all columns and some more, .drop(…) for all but some"
    ),
    't.select(x=dbsp.when(col("id") > 1).otherwise(2))': (
        "a when() without a value: condition=(id > 1) at=circuit.py:LINE; "
        "write dbsp.when(condition, value).when(…, …).otherwise(other)"
    ),
    "t.with_columns(n=dbsp.row_number())": (
        "a window function is not a value of a row at=circuit.py:LINE; "
        'name it, .window(partition_by="k", order_by="at").with_columns(n=dbsp.row_number()), '
        "and compute with its column after that"
    ),
    't.group_by("name").aggregate(mean=dbsp.sum("delay") / dbsp.count())': (
        "an aggregate is not a value to compute with at=circuit.py:LINE; "
        'name it, .group_by("k").aggregate(n=dbsp.count()), and compute with its column after that: dbsp.col("n") > 1; '
        "beside each row it is .window(…).with_columns(n=dbsp.rolling(dbsp.count(), rows=(None, None)))"
    ),
    't.group_by("name").aggregate(dbsp.count())': (
        "an aggregate needs a name: got=Aggregate(kind=Count(), arguments=(), order=(), condition=None) at=circuit.py:LINE; "
        "such as n=dbsp.count()"
    ),
    't.select(age=dbsp.now() - col("at"))': (
        "now() is allowed in filters only at=circuit.py:LINE; "
        "a value that moves with the clock would change every row at every step: keep the timestamp, and compare it in a "
        'filter, such as dbsp.col("at") > dbsp.now() - dbsp.hours(1), or take the difference when you read; '
        "for classes of age, one filter per class, then union"
    ),
    't.filter(col("at") >= dbsp.now().truncate("day"))': (
        'now() plus or minus a constant is wanted here: condition=(at >= now().truncate("day")) at=circuit.py:LINE; '
        'move the column instead: for today day = dbsp.col("at").truncate("day"), then '
        "(day <= dbsp.now()) & (dbsp.now() < day + dbsp.days(1))"
    ),
    't.rename({"nam": "x"})': 'no such column: column="nam" at=circuit.py:LINE; did you mean "name"?',
    't.rename({"name": "delay"})': ("repeated column name: columns=['delay'] at=circuit.py:LINE; rename one of them"),
    't.join(u, on="id")': (
        "join keys have different types: id=int64 id=string at=circuit.py:LINE; "
        'write .with_columns(id=dbsp.col("id").cast(dbsp.INT64)) on the right side'
    ),
    't.join(u, on={"delay": "code"}, suffix=None)': (
        "both sides of a join have this column: column=id at=circuit.py:LINE; give a suffix=, or rename one side with .rename"
    ),
    "t.join(u)": (
        "a join needs as many left as right keys, at least one: left=[] right=[] at=circuit.py:LINE; "
        'write on="key", on=["a", "b"] or on={"left column": "right column"}; for a condition alone'
        ' .cross_join(other, where=condition), and for how="left", "semi" or "anti" a key that is the same everywhere,'
        " .with_columns(all=dbsp.lit(1)) on both sides"
    ),
    't.group_by("name").aggregate(x=dbsp.sum("name"))': (
        "sum is for numbers: argument=name type=string at=circuit.py:LINE; "
        'write dbsp.sum(dbsp.col("name").cast(dbsp.INT64))'
    ),
    't.group_by("name").aggregate(x=col("delay"))': (
        "not an aggregate: name=x got=delay at=circuit.py:LINE; "
        "write x=dbsp.max(…) or another aggregate of dbsp, such as count, sum, avg, median, string_agg"
    ),
    't.group_by("nam")': 'no such column: column="nam" at=circuit.py:LINE; did you mean "name"?',
    "t.union(u)": (
        "columns differ: missing=['delay', 'price', 'at', 'day', 'size'] extra=['code'] at=circuit.py:LINE; "
        "bring them in line with .select or .rename"
    ),
    't.select("id").union(u.select("id"))': (
        "column types differ: column=id types=int64 and string at=circuit.py:LINE; "
        'write .with_columns(id=dbsp.col("id").cast(dbsp.INT64)) on the second stream'
    ),
    't.top_k(0, by="delay")': "top_k needs a whole number of rows, at least one: k=0 at=circuit.py:LINE",
    't.top_k(3, by=dbsp.desc("dely"))': 'no such column: column="dely" at=circuit.py:LINE; did you mean "delay"?',
    't.map(lambda r: r, schema={"x": int})': (
        "not a column type: column=x type=<class 'int'> at=circuit.py:LINE; write one such as dbsp.INT64 or dbsp.STRING"
    ),
    'dbsp.table("flight log", {"x": dbsp.INT64})': (
        "not a name for a table: name='flight log' at=circuit.py:LINE; "
        "use letters, digits and _, a letter first, at most 63 characters"
    ),
    'dbsp.table("x", {"x": dbsp.INT64}, primary_key="y")': 'no such column: column="y" at=circuit.py:LINE; there is "x"',
    'dbsp.circuit("c", {"v": t.group_by("name")})': (
        "a view is a stream: view=v got=Group at=circuit.py:LINE; finish it with .aggregate(…)"
    ),
    'dbsp.circuit("c", {"v": t}, materialize=["w"])': (
        'no such view to materialize: view=w at=circuit.py:LINE; there is "v"'
    ),
    'dbsp.circuit("c", {"v": t}, error_policy="skip")': (
        'no such error policy: error_policy=\'skip\' at=circuit.py:LINE; there is "dead-letter", "null", "stop"'
    ),
    "lit(300, dbsp.INT8)": (
        "the constant does not fit its type: value=300 type=dbsp.INT8 at=circuit.py:LINE; give another type"
    ),
    't.with_columns(x=dbsp.coalesce("name", "none"))': (
        "coalesce takes nothing after a text: text='name' at=circuit.py:LINE; "
        'a text is itself here: write dbsp.col("name") for the column'
    ),
    't.with_columns(x=dbsp.greatest("id", "delay"))': (
        "greatest of constants alone: constants=('id', 'delay') at=circuit.py:LINE; "
        'a text is itself here: write dbsp.col("id") for the column'
    ),
    't.with_columns(x=col("name")[0])': (
        "an expression cannot be indexed by a number: expression=name got=0 at=circuit.py:LINE; "
        "write .element(1) for the first of a list, "
        '.substr(1, 1) of a text, .json_value("$.a") of JSON'
    ),
    't[col("delay") > 3]': (
        "a column is named by a text: got=(delay > 3) at=circuit.py:LINE; "
        "write .filter(condition) for rows, .select(…) for columns"
    ),
    't.group_by("id").aggregate(n=dbsp.count_distinct("name", "delay"))': (
        "count_distinct takes one column: got=2 at=circuit.py:LINE; "
        'for different pairs: .select("k", "x", "y").distinct().group_by("k").aggregate(n=dbsp.count())'
    ),
    't.grouping_sets([["name"], [col("at").year()]])': (
        "an expression needs a name: expression=at.year() at=circuit.py:LINE; "
        "add it as a column before: .with_columns(x=…), then name x here"
    ),
    "t.with_columns(x=2**63)": (
        "constant outside the range of int64: value=9223372036854775808 at=circuit.py:LINE; use dbsp.lit(value, dbsp.UINT64)"
    ),
}


@pytest.mark.parametrize("code", MISTAKES)
def test_the_message_names_the_line_and_the_cure(code: str, tmp_path: Path) -> None:
    file = tmp_path / "circuit.py"
    file.write_text(HEAD + code + "\n")
    with pytest.raises(CircuitError) as caught:
        load_circuit(f"{file}:circuit")
    message = str(caught.value).replace(f"{tmp_path}/", "")
    assert message == MISTAKES[code].replace("LINE", str(LINE))


def test_two_tables_of_one_name_are_both_named(tmp_path: Path) -> None:
    file = tmp_path / "circuit.py"
    file.write_text(
        textwrap.dedent("""\
        import dbsp
        a = dbsp.table("t", {"x": dbsp.INT64})
        b = dbsp.table("t", {"x": dbsp.INT32})
        circuit = dbsp.circuit("c", {"a": a, "b": b})
        """)
    )
    with pytest.raises(CircuitError) as caught:
        load_circuit(f"{file}:circuit")
    message = str(caught.value).replace(f"{tmp_path}/", "")
    assert message == (
        "two tables have one name: table=t second=circuit.py:3 at=circuit.py:4; "
        "use one dbsp.table value everywhere; the other is at circuit.py:2"
    )


def test_the_line_is_that_of_a_statement_inside_a_function() -> None:
    def build() -> dbsp.Stream:
        table = dbsp.table("t", {"x": dbsp.INT64})
        return table.select(
            "x",
        ).filter(dbsp.col("y") > 1)

    with pytest.raises(CircuitError, match=rf"at={__file__}:{build.__code__.co_firstlineno + 4}"):
        build()


t = dbsp.table("t", {"x": dbsp.INT64, "at": dbsp.TIMESTAMP})
RUN = dbsp.open(dbsp.circuit("c", {"t": t}))


@pytest.mark.parametrize(
    ("what", "name", "hint"),
    [
        (t, "where", "write .filter(condition)"),
        (t, "fliter", 'did you mean "filter"?'),
        (t, "x", 'write stream["x"] or dbsp.col("x") for the column'),
        (t.group_by("x"), "agg", "write .aggregate("),
        (t["x"], "alias", "write name=expression"),
        (t["x"], "isin", "write .is_in("),
        (dbsp.sum("x"), "filter", "write .where("),
        (dbsp.row_number(), "over", "write .window("),
        (dbsp, "VARCHAR", "write dbsp.STRING"),
        (RUN, "insert", 'write run.push("t", rows)'),
        (RUN.view("t"), "toPandas", "write .to_pandas()"),
        (dbsp, "any_value", 'write dbsp.min("x")'),
        (dbsp, "count_if", "write dbsp.count().where("),
        (dbsp, "quantil_cont", 'did you mean "quantile_cont"'),
        (dbsp, "array", 'write dbsp.struct("a", "b")'),
        (dbsp, "hash", 'write dbsp.col("x").hash()'),
        (dbsp.avg("x"), "round", '.with_columns(m=dbsp.col("m").round(2))'),
        (dbsp.lag("x"), "fill_null", 'dbsp.lag("x", 1, 0)'),
        (t.group_by("x"), "rollup", 'write stream.rollup("a", "b").aggregate('),
        (dbsp, "generate_series", "stream.explode(dbsp.sequence(a, b)"),
        (dbsp, "grouping", 'write .rollup("a", "b", grouping="g")'),
        (dbsp, "exists", 'how="semi"'),
        (dbsp.col("l"), "array_max", "write .list_max()"),
        (dbsp.col("s"), "regexp_extract_all", "Python's re.findall"),
        (dbsp, "pi", "write math.pi"),
        (dbsp, "sum_if", 'write dbsp.sum("x").where(condition)'),
        (dbsp, "date_part", 'write dbsp.col("at").year()'),
        (dbsp, "make_date", '.strptime("%Y-%m-%d")'),
        (dbsp, "to_date", 'write .strptime("%d.%m.%Y")'),
        (t["x"], "bit_count", "write .map(function"),
        (t["x"], "popcount", "write .map(function"),
        (t["x"], "url_decode", "write .map(function"),
        (t["x"], "radians", "math.pi / 180"),
        (t["x"], "mod", "write a % b"),
        (t["x"], "width_bucket", ".floor() + 1"),
        (t["at"], "date_trunc", 'write .truncate("month")'),
        (t.rollup("x"), "pivot", '.aggregate(a=dbsp.sum("x").where('),
    ],
)
def test_what_others_call_it_is_answered_with_what_it_is_here(what: object, name: str, hint: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(what, name)
    assert hint in str(caught.value)
    assert (caught.value.name, caught.value.obj) == (None, None), "Python would add a guess of its own"
    assert not hasattr(what, "__array__")


def test_no_hint_stands_for_a_name_that_is_there() -> None:
    owners = [
        (dbsp.Stream, "stream"),
        (dbsp.Group, "group"),
        (dbsp.Expr, "value"),
        (dbsp.Expr, "expression"),
        (dbsp, "value"),
        (dbsp, "function"),
        (Window, "window"),
        (When, "when"),
    ]
    found = [(owner, name) for owner, section in owners for name in suggestions.hints(section) if name in dir(owner)]
    assert found == []


def test_every_section_of_the_suggestions_is_used_and_no_other() -> None:
    streams = [dbsp.Stream, dbsp.Group, GroupSets, Window]
    classes = [*streams, dbsp.Expr, Aggregate, When, WindowFunction, dbsp.Run, dbsp.Rowset]
    used = {section for owner in classes for section in owner._OTHERS}
    assert used | {"function", "argument", "same"} == set(suggestions._tables().sections())


u = dbsp.table("u", {"x": dbsp.INT64, "at": dbsp.TIMESTAMP})
s = dbsp.table("s", {"s": dbsp.STRING, "c": dbsp.STRING, "l": dbsp.list_of(dbsp.STRING)})


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: t.join(u, using="x"), "write on=…"),
        (lambda: t.join(u, "x", "left"), 'write .join(other, on="k", how="left")'),
        (lambda: t.top_k(n=3, by="x"), "write k=…"),
        (lambda: t.limit(3, order_by="x"), "write by=…"),
        (lambda: t.limit(3, "x", descending=True), 'write by=dbsp.desc("x")'),
        (lambda: t.session("at", by="x"), "write partition_by=…"),
        (lambda: t.distinct("x"), '.limit(1, by="at", partition_by="k")'),
        (lambda: t.tumble("at", every="5m"), "write size=…"),
        (lambda: t.group_by("x").pivot("x"), "missing=values"),
        (lambda: t.with_columns(t["x"] + 1), "write .with_columns(name=expression)"),
        (lambda: t.filter(x=3), 'write .filter(dbsp.col("x") == 1)'),
        (lambda: t["x"].is_in(1, 2), "write .is_in([1, 2])"),
        (lambda: t["x"].round(decimals=2), "write digits=…"),
        (lambda: dbsp.when(t["x"] > 1, 2, 3), "write dbsp.when(condition, value).otherwise(other)"),
        (lambda: dbsp.count("x", distinct=True), 'write dbsp.count_distinct("x")'),
        (lambda: dbsp.sum("x", where=t["x"] > 1), 'write dbsp.sum("x").where(condition)'),
        (lambda: dbsp.stddev("x", distinct=True), "make the rows distinct first"),
        (lambda: dbsp.string_agg("x", order_by="at", distinct=True), "leave order_by out, or give the argument itself"),
        (lambda: t.top_k(3, by="x", ties=True), ".with_columns(r=dbsp.rank())"),
        (lambda: t.filter(dbsp.row_number() == 1), "Python answered a comparison itself"),
        (lambda: t.filter((t["at"] - t["at"]) > 3), "compare a span with a span, dbsp.days(3)"),
        (lambda: t.join(u, on=("x", "x")), 'for different names write on={"left column": "right column"}'),
        (lambda: s.explode(s["s"].split(",")), 'write .explode(s.split(","), "element")'),
        (lambda: s.select(y=s["s"].replace("", "x")), 'dbsp.lit("…") + x'),
        (lambda: s.select(y=s["s"].left(s["c"])), "write (c).cast(dbsp.INT64)"),
        (lambda: t.select(y=dbsp.sequence(t["at"], t["at"], "fortnight")), 'or "month", "quarter", "year"'),
        (lambda: t.select(y=dbsp.sequence(t["x"], t["x"], dbsp.days(1))), "such as 1 or -1"),
        (lambda: dbsp.rank("x"), "it is dbsp.rank()"),
        (lambda: dbsp.table("v", {"x": dbsp.INT64}, key="x"), "write primary_key=…"),
        (lambda: dbsp.circuit("c", {"t": t}, error_polic="stop"), 'did you mean "error_policy"?'),
        (lambda: t.unpivot("x"), 'such as ["jan", "feb"]'),
        (lambda: t.unpivot(["x", "at"]), 'write .with_columns(at=dbsp.col("at").cast(dbsp.INT64)) before'),
        (lambda: t.unpivot(["x"], name="at"), 'such as name="month", value="sold"'),
        (lambda: t.unpivot(["y"]), 'there is "x", "at"'),
        (lambda: t.unpivot(on=["x"], index="at"), "write columns=…"),
        (lambda: t.top_k(3, by="x", rank=True), 'such as rank="place"'),
        (lambda: t.join(u.rename({"x": "y"}), on="x"), 'the left side has it: on={"left": "right"}'),
        (lambda: t.with_columns(y=dbsp.lit("no. ") + t["x"]), "write x.cast(dbsp.STRING) to join texts"),
        (lambda: t.with_columns(y=int(t["x"])), "write .cast(dbsp.INT64)"),
        (lambda: t.with_columns(y=len(t["x"])), ".length() of a text"),
        (lambda: t.with_columns(y=max(t["x"], 3)), "dbsp.greatest"),
        (lambda: dbsp.open(t), "write dbsp.open(dbsp.circuit("),
        (lambda: t.filter(t["x"] in [1, 2]), ".is_in([…]) for in"),
        (lambda: t.filter(t["at"] > "2024-01-01T02:00:00+02:00"), 'an ISO text such as "2024-01-01T00:00:00"'),
        (lambda: t.filter(t["at"].cast(dbsp.DATE) == "01.02.2024"), 'an ISO text such as "2024-05-31"'),
        (lambda: t.filter(t["at"].cast(dbsp.TIMESTAMP_UTC) < "2024-01-01"), '"2024-01-01T00:00:00+00:00"'),
        (lambda: t.filter(t["x"] == "2"), "write 2, without quotes"),
        (lambda: t.filter(t["x"] == "two"), "write x.cast(dbsp.STRING)"),
        (lambda: t.filter(t["x"].cast(dbsp.decimal(9, 2)) == "2.50"), 'write Decimal("2.50"), without quotes'),
        (lambda: t.filter(t["x"] > t.aggregate(m=dbsp.avg("x"))), '.cross_join(stream.aggregate(m=dbsp.avg("x")))'),
        (lambda: t.select(["x", "at"]), 'name columns one by one, .select("id", "a")'),
        (lambda: dbsp.lit([1, 2]), "a row per constant comes from .flat_map("),
        (lambda: t.aggregate(m=dbsp.median("at")), 'write dbsp.quantile_cont(dbsp.col("at").epoch("second"), 0.5)'),
        (lambda: dbsp.date_diff(t["at"], t["at"], "day"), 'write date_diff("day", a, b), the unit first'),
        (lambda: t.select(y=t["at"].truncate(t["x"])), 'such as .truncate("day")'),
        (lambda: t.select(y=t["at"].epoch(t["x"])), "the unit is a constant text: unit=x"),
        (lambda: t.select(y=dbsp.from_epoch(t["x"], t["x"])), "the unit is a constant text: unit=x"),
        (lambda: dbsp.col("s").replace(5, "n"), "a constant text is wanted: old=5"),
        (lambda: dbsp.col("l").list_join(dbsp.col("c")), "a constant text is wanted: separator=c"),
        (lambda: s.select(y=s["s"].regexp_count(s["c"])), "for one of a column write .map(function"),
        (lambda: s.select(y=s["l"].list_contains(s["c"])), ".explode the list and compare"),
        (lambda: dbsp.concat_ws("-", "s", "c"), 'write dbsp.col("s") for the column'),
        (lambda: s.select(y=s["s"].strptime("%H:%M:%S.%f")), "are read by .cast(dbsp.TIMESTAMP)"),
        (lambda: s.select(y=s["s"].strptime("%H:%M %Z")), "the name of a zone is not read"),
        (lambda: s.select(y=s["s"].strptime("%z %H:%M")), "strptime reads %z only at the end"),
        (lambda: t.select(y=t["at"].strftime("%H:%M %z")), "strftime has no %z"),
        (lambda: t.select(y=t["x"] % 2.5), "write a - (a / b).floor() * b"),
        (lambda: t.filter(t["x"] > " at="), "write x.cast(dbsp.STRING)"),
    ],
)
def test_a_call_that_does_not_fit_is_answered_with_one_that_does(call: Callable[[], object], hint: str) -> None:
    with pytest.raises(CircuitError) as caught:
        call()
    assert hint in str(caught.value)
    assert f"at={__file__}:" in str(caught.value)


def test_a_decimal_has_so_many_digits() -> None:
    with pytest.raises(CircuitError, match="38 at most"):
        dbsp.decimal(50, 2)


def test_every_public_call_answers_an_argument_that_is_not_there() -> None:
    silent = []
    for name, call in _public_calls():
        if any(p.kind is p.VAR_KEYWORD for p in inspect.signature(call).parameters.values()):
            continue
        try:
            call(no_such_argument=1)
        except CircuitError as error:
            if "no such argument" in str(error):
                continue
        except TypeError:
            pass
        silent.append(name)
    assert silent == []


def test_an_error_inside_a_users_function_stays_what_it_is() -> None:
    def body(_: dbsp.Stream) -> dbsp.Stream:
        raise TypeError("of the user")

    with pytest.raises(TypeError, match="of the user"):
        dbsp.recursive(t, body)


def _public_calls() -> Iterator[tuple[str, Callable[..., object]]]:
    """What a user may call: the functions of `dbsp`, and the methods of what they return."""
    owners = (
        dbsp,
        t,
        t["x"],
        t.group_by("x"),
        t.rollup("x"),
        t.window(order_by="x"),
        dbsp.sum("x"),
        dbsp.when(t["x"] > 1, 1),
        RUN,
        RUN.view("t"),
    )
    for owner in owners:
        for name in dbsp.__all__ if owner is dbsp else dir(owner):
            if not name.startswith("_") and inspect.isroutine(call := getattr(owner, name)):
                yield f"{owner!r:.20}.{name}", call
