"""User functions: what they give, what fails, what counts as the same function, and that they travel."""

from __future__ import annotations

import datetime as dt
import functools
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import dbsp
from dbsp.circuit.load import load_circuit
from dbsp.errors import CircuitError, DataError
from dbsp.expr.functions import UserFunction
from dbsp.expr.sources import source_text
from dbsp.zset.batch import Batch
from dbsp.zset.schema import Column, Schema

IN = Schema.of({"x": dbsp.INT64, "s": dbsp.STRING})
OUT = Schema((Column("y", dbsp.INT32), Column("t", dbsp.STRING, nullable=False)))


def batch(*rows: tuple[int | None, str | None]) -> Batch:
    return Batch.from_rows(IN, list(rows))


def function(f, kind="row", schema=OUT, depends_on=(), check=False) -> UserFunction:
    return UserFunction.of(f, schema, kind, depends_on, check)


def doubled(row):
    """Doubles."""
    return {"y": row["x"] * 2, "t": row["s"]}


def test_map_gives_one_row_each():
    origin, columns, failures = function(doubled).apply(batch((1, "a"), (2, "b")))
    assert origin.tolist() == [0, 1]
    assert origin.dtype == np.int64
    assert [column.to_pylist() for column in columns] == [[2, 4], ["a", "b"]]
    assert [column.type for column in columns] == [pa.int32(), pa.string()]
    assert failures == []


def test_flat_map_gives_any_number_and_takes_generators():
    def letters(row):
        for letter in row["s"]:
            yield {"y": row["x"], "t": letter}

    origin, columns, failures = function(letters, "flat").apply(batch((1, "ab"), (2, ""), (3, "c")))
    assert origin.tolist() == [0, 0, 2]
    assert columns[1].to_pylist() == ["a", "b", "c"]
    assert failures == []


def test_flat_map_gives_no_row_for_none_and_refuses_what_holds_no_rows():
    def some(row):
        return [{"y": 1, "t": ""}] if row["s"] else (None if row["x"] else 0)

    origin, _, failures = function(some, "flat").apply(batch((0, ""), (1, ""), (2, "a")))
    assert origin.tolist() == [2]
    assert failures == [(0, "some raised TypeError: a flat_map function returns an iterable of dicts, not a int")]


def test_no_rows_give_empty_columns_of_the_right_types():
    origin, columns, failures = function(doubled).apply(batch())
    assert (origin.tolist(), failures) == ([], [])
    assert [column.type for column in columns] == [pa.int32(), pa.string()]


def test_what_fails_takes_only_its_own_row():
    def odd(row):
        match row["x"]:
            case 0:
                return {"y": 1 // 0, "t": ""}
            case 1:
                return {"y": 1}
            case 2:
                return {"y": 1, "t": None}
            case 3:
                return {"y": "text", "t": ""}
            case 4:
                return {"y": 2**40, "t": ""}
            case 5:
                return [1]
        return {"y": row["x"], "t": "good"}

    origin, columns, failures = function(odd).apply(batch(*((x, "") for x in range(8))))
    assert origin.tolist() == [6, 7]
    assert columns[0].to_pylist() == [6, 7]
    assert [position for position, _ in failures] == [0, 1, 2, 3, 4, 5]
    reasons = [reason for _, reason in failures]
    assert reasons[0] == "odd raised ZeroDivisionError: integer division or modulo by zero"
    assert "missing=['t'] extra=[]" in reasons[1]
    assert "null in a column that is not nullable: column=t" in reasons[2]
    assert reasons[3].startswith("odd returned a value that does not fit: column=y type=int32")
    assert reasons[4].startswith("odd returned a value that does not fit: column=y type=int32")
    assert "returns a dict per row, not a list" in reasons[5]


def test_a_flat_map_that_fails_late_gives_nothing_of_its_row():
    def late(row):
        yield {"y": 1, "t": ""}
        if row["x"] == 1:
            raise ValueError("no")
        yield {"y": 2 if row["x"] else "text", "t": ""}

    origin, _, failures = function(late, "flat").apply(batch((0, ""), (1, ""), (2, "")))
    assert origin.tolist() == [2, 2]
    assert [position for position, _ in failures] == [0, 1]


def test_a_batch_function_that_always_fails_leaves_every_row_as_failed():
    def never(rows):
        raise ValueError(f"no rows={rows.num_rows}")

    origin, columns, failures = function(never, "batch").apply(batch((0, ""), (1, "")))
    assert origin.tolist() == []
    assert [(column.type, len(column)) for column in columns] == [(pa.int32(), 0), (pa.string(), 0)]
    assert [position for position, _ in failures] == [0, 1]
    origin, columns, failures = function(never, "batch").apply(batch())
    assert (origin.tolist(), [len(column) for column in columns], failures) == ([], [0, 0], [])


def of_text(code: str, tmp_path: Path, name: str = "f") -> str:
    """The canonical source of a function in a file of its own."""
    file = tmp_path / f"m{len(list(tmp_path.iterdir()))}.py"
    file.write_text(textwrap.dedent(code))
    scope: dict = {"__name__": "user"}
    exec(compile(file.read_text(), str(file), "exec"), scope)
    return source_text(scope[name], tuple(scope.get("depends_on", ())))


BASE = """
    LIMIT = 5
    def helper(x):
        return x + LIMIT
    def f(row):
        return {"y": helper(row["x"])}
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def f(row):", 'def f(row):\n        "What it does."\n        # and why'),
        ("    LIMIT = 5", "    import os\n\n\n    LIMIT = 5"),
        ('{"y": helper(row["x"])}', "{ 'y' :  helper( row['x'] ) }"),
        ("def f(row)", "def f(row: dict) -> dict"),
        ("    def helper(x)", "    def unused():\n        return 3\n    def helper(x)"),
    ],
)
def test_appearance_does_not_matter(old, new, tmp_path):
    assert of_text(BASE.replace(old, new), tmp_path) == of_text(BASE, tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [("LIMIT = 5", "LIMIT = 6"), ("x + LIMIT", "x - LIMIT"), ('{"y":', '{"z":'), ("f(row)", "f(row, k=1)")],
)
def test_meaning_matters(old, new, tmp_path):
    assert of_text(BASE.replace(old, new), tmp_path) != of_text(BASE, tmp_path)


def test_declared_dependencies_matter(tmp_path):
    code = "def f(row):\n    return row\ndepends_on = ({'a': [1, 2.5, None]}, (3,))\n"
    assert of_text(code, tmp_path) != of_text(code.replace("2.5", "2.6"), tmp_path)
    with pytest.raises(CircuitError, match="cannot tell whether this value changed: type=object"):
        source_text(doubled, (object(),))


def test_closures_and_partials_matter():
    def made(step, table):
        return lambda row: {"y": row["x"] + step + len(table)}

    assert source_text(made(1, {"a": 1})) == source_text(made(1, {"a": 1}))
    assert source_text(made(1, {"a": 1})) != source_text(made(2, {"a": 1}))
    assert source_text(made(1, {"a": 1})) != source_text(made(1, {"a": 2}))

    def shift(row, by):
        return {"y": row["x"] + by}

    assert source_text(functools.partial(shift, by=1)) != source_text(functools.partial(shift, by=2))


class Scale:
    def __init__(self, by):
        self.by = by

    def __call__(self, row):
        return {"y": row["x"] * self.by}

    def method(self, row):
        return {"y": row["x"] + self.by}


def test_objects_and_methods_count_with_their_attributes():
    assert source_text(Scale(1)) == source_text(Scale(1))
    assert source_text(Scale(1)) != source_text(Scale(2))
    assert source_text(Scale(1).method) == source_text(Scale(1).method)
    assert source_text(Scale(1).method) != source_text(Scale(2).method)
    assert source_text(Scale(1).method) != source_text(Scale(1))


def test_lambdas_of_one_line_are_told_apart():
    one, two = (lambda row: {"y": row["x"]}), (lambda row: {"y": -row["x"]})
    assert source_text(one) != source_text(two)
    assert "USub" in source_text(two)
    assert "USub" not in source_text(one)


def test_the_canonical_text_is_fixed(tmp_path):
    code = """
    STEP = 0.5
    def f(row):
        "doc"
        return {"y": row["x"] + STEP}
    """
    assert of_text(code, tmp_path) == (
        '(FunctionDef args=(arguments args=[(arg arg=<str "row">)]) body=[(Return value=(Dict keys=[(Constant'
        ' value=<str "y">)] values=[(BinOp left=(Subscript slice=(Constant value=<str "x">) value=(Name id=<str "row">))'
        ' op=(Add) right=(Name id=<str "STEP">))]))] name=<str "f">)\nSTEP = float 0.5'
    )


def test_a_function_without_source_is_refused():
    scope: dict = {}
    exec("def f(row):\n    return row", scope)
    with pytest.raises(CircuitError, match="the source of a user function cannot be read: function=f"):
        source_text(scope["f"])


def test_a_function_of_a_loaded_file_runs_where_the_file_is_not(tmp_path):
    (tmp_path / "mine.py").write_text(
        textwrap.dedent("""\
        import dbsp
        FACTOR = 10
        def helper(x):
            return x * FACTOR
        def scale(row):
            return {"y": helper(row["x"])}
        t = dbsp.table("t", {"x": dbsp.INT64})
        circuit = dbsp.circuit("c", {"v": t.map(scale, schema={"y": dbsp.INT64})})
        """)
    )
    circuit = load_circuit(str(tmp_path / "mine.py") + ":circuit")
    (tmp_path / "pickled").write_bytes(pickle.dumps(circuit))
    code = textwrap.dedent(f"""\
        import pickle, sys
        from dbsp.zset.batch import Batch
        circuit = pickle.load(open({str(tmp_path / "pickled")!r}, "rb"))
        node = circuit.views[0][1]
        batch = Batch.from_rows(node.input.schema, [(1,), (2,)])
        assert "dbsp_user_mine" not in sys.modules
        again = pickle.loads(pickle.dumps(circuit))
        print(again.fingerprint, again.views[0][1].function.apply(batch)[1][0].to_pylist())
        """)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split(maxsplit=1) == [circuit.fingerprint, "[10, 20]\n"]


def test_functions_are_equal_by_source_and_schema():
    assert function(doubled) == function(doubled)
    assert hash(function(doubled)) == hash(function(doubled))
    assert function(doubled) != function(doubled, "flat")
    assert pickle.loads(pickle.dumps(function(doubled))) == function(doubled)


def summed(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Fails as a whole where a text is too long, as a kernel does."""
    if pc.any(pc.greater(pc.utf8_length(rows["s"]), 3)).as_py():
        raise ValueError("too long")
    return pa.RecordBatch.from_arrays([pc.multiply(rows["x"], 2).cast(pa.int32()), rows["s"]], names=["y", "t"])


def test_a_batch_function_gives_a_row_for_each_row():
    origin, columns, failures = function(summed, "batch").apply(batch((1, "a"), (None, "b")))
    assert origin.tolist() == [0, 1]
    assert [column.to_pylist() for column in columns] == [[2, None], ["a", "b"]]
    assert failures == []


def test_in_a_batch_only_the_failing_rows_fail():
    origin, columns, failures = function(summed, "batch").apply(
        batch((1, "a"), (2, "long"), (3, "c"), (4, None), (2**31, "e"))
    )
    assert origin.tolist() == [0, 2]
    assert columns[0].to_pylist() == [2, 6]
    assert [row for row, _ in failures] == [1, 3, 4]
    assert "summed raised ValueError: too long" in failures[0][1]
    assert "null in a column that is not nullable: column=t" in failures[1][1]


def test_a_batch_of_another_shape_fails_its_rows():
    shorter = function(lambda rows: summed(rows.slice(1)), "batch")
    origin, _, failures = shorter.apply(batch((1, "a"), (2, "b")))
    assert origin.tolist() == []
    assert [row for row, _ in failures] == [0, 1]


@pytest.mark.parametrize("kind", ["row", "flat", "batch"])
def test_check_finds_a_function_with_a_memory(kind):
    seen = []

    def numbered(row):
        seen.append(row)
        return {"y": len(seen), "t": ""}

    def numbered_rows(row):
        return [numbered(row)]

    def numbered_batch(rows):
        return pa.RecordBatch.from_pylist([numbered(row) for row in rows.to_pylist()], schema=OUT.to_arrow())

    impure = {"row": numbered, "flat": numbered_rows, "batch": numbered_batch}[kind]
    function(impure, kind, depends_on=(seen,)).apply(batch((1, "a"), (2, "b")))
    with pytest.raises(DataError, match="two answers for one row"):
        function(impure, kind, depends_on=(seen,), check=True).apply(batch((1, "a"), (2, "b")))


@pytest.mark.parametrize("kind", ["row", "flat", "batch"])
def test_check_agrees_with_a_pure_function(kind):
    def letters(row):
        for letter in row["s"]:
            yield {"y": row["x"], "t": letter}

    pure = {"row": doubled, "flat": letters, "batch": summed}[kind]
    rows = batch((1, "ab"), (2, ""), (3, "long one"), (4, "nan"))
    made, checked = (function(pure, kind, check=check).apply(rows) for check in (False, True))
    assert made[0].tolist() == checked[0].tolist()
    assert [column.to_pylist() for column in made[1]] == [column.to_pylist() for column in checked[1]]
    assert made[2] == checked[2]


CUT = {"n": dbsp.INT64, "f": dbsp.FLOAT32, "day": dbsp.DATE, "l": dbsp.list_of(dbsp.INT64)}


def cut(row):
    """Of rows with an odd number one value does not fit, each time another."""
    whole = {"n": row["x"], "f": 1.5, "day": dt.date(2024, 1, 1), "l": [1]}
    wrong = {1: {"n": 2.9}, 3: {"f": 1e300}, 5: {"day": dt.datetime(2024, 1, 1, 23)}, 7: {"l": [2.9]}, 9: {"l": b"a"}}
    return whole | wrong.get(row["x"], {})


def cuts(row):
    """Twice."""
    return [cut(row | {"x": 0}), cut(row)]


def cut_batch(rows):
    """With a float beyond 32 bits in odd rows."""
    odd = pc.equal(pc.bit_wise_and(rows["x"], 1), 1)
    return pa.table({"f": pc.if_else(odd, 1e300, 0.5)}).to_batches()[0]


def total(rows):
    """Half of the sum."""
    return sum(row["x"] for row in rows) / 2


def test_values_that_a_column_would_cut_fail_their_row():
    t = dbsp.table("t", {"x": dbsp.INT64})
    views = {
        "one": t.map(cut, schema=CUT),
        "two": t.flat_map(cuts, schema=CUT),
        "batch": t.map_batches(cut_batch, schema={"f": dbsp.FLOAT32}),
        "fold": t.group_by("x").aggregate(half=dbsp.fold_aggregate("x", function=total, type=dbsp.INT64)),
    }
    with dbsp.open(dbsp.circuit("c", views)) as run:
        run.push("t", {"x": list(range(10))})
        run.step()
        assert sorted(row["n"] for row in run.view("one").to_pylist()) == [0, 2, 4, 6, 8]
        assert sorted(row["n"] for row in run.view("two").to_pylist()) == [0, 0, 0, 0, 0, 0, 2, 4, 6, 8]
        assert run.view("batch").to_pylist() == [{"f": 0.5}] * 5
        assert run.view("fold").to_rows() == [((x, x // 2), 1) for x in (0, 2, 4, 6, 8)]
        letters = run.dead_letters()
        assert len(letters) == 20
        assert sum("is not a value of this type" in letter.reason for letter in letters) == 20
        run.delete("t", {"x": list(range(10))})
        run.step()
        assert not any(len(run.view(name)) for name in views)
        assert {letter.weight for letter in run.dead_letters()} == {1, -1}
