"""Long and deep queries: each node is lowered once, and no pass nests a call for every term."""

from __future__ import annotations

import functools
import operator
import pickle
import time
from collections.abc import Callable
from typing import Any

import pytest

import dbsp
from dbsp.expr.expression import Call
from dbsp.expr.methods.applied import unwrap
from dbsp.expr.resolving import resolve
from dbsp.plan.planner import plan
from dbsp.plan.signatures import signatures

T = dbsp.table("t", {"a": dbsp.INT64, "b": dbsp.INT64, "s": dbsp.STRING})
LEVELS = 200
CHAINS = {
    **{
        name: sign.join(["a"] * 1500)
        for name, sign in (("sum", "+"), ("product", "*"), ("quotient", "//"), ("rest", "%"))
    },
    "or": " or ".join(f"a = {at}" for at in range(1500)),
    "texts": "||".join(["s"] * 1500),
    "case": f"case {' '.join(f'when a = {at} then {at}' for at in range(1500))} end",
    "cases": "+".join(f"case when a = {at} then 1 else 0 end" for at in range(300)),
}
NESTED = {
    "brackets": "(a + " * LEVELS + "a" + ")" * LEVELS,
    "functions": "coalesce(" * LEVELS + "a" + ", b)" * LEVELS,
    "cases": "case when a > 1 then 1 else " * LEVELS + "a" + " end" * LEVELS,
}


def _made(stream: dbsp.Stream) -> Any:
    """What a circuit of the stream says of one row; every pass over the circuit has run."""
    circuit = dbsp.circuit("c", {"v": stream})
    assert len(circuit.fingerprint) == 64
    assert circuit.explain()
    signatures(plan(circuit))
    with dbsp.open(circuit) as run:
        run.push("t", [{"a": 1, "b": 2, "s": "x"}])
        return run.step()["v"].to_rows()


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_a_chain_is_linear(chain: str) -> None:
    before = time.process_time()
    assert len(_made(dbsp.sql(f"select {chain} as x from t", t=T))) == 1
    assert time.process_time() - before < 20, "not linear: doubling or squaring would take minutes"


@pytest.mark.parametrize("nested", NESTED.values(), ids=NESTED)
def test_nesting(nested: str) -> None:
    assert len(_made(dbsp.sql(f"select {nested} as x from t", t=T))) == 1


def test_nesting_of_subqueries() -> None:
    text = "select a + 1 as a from (" * LEVELS + "select a from t" + ")" * LEVELS
    assert _made(dbsp.sql(text, t=T)) == [((LEVELS + 1,), 1)]


def test_nesting_beyond_the_limit_is_refused_at_its_place() -> None:
    with pytest.raises(dbsp.CircuitError, match=r"nested too deeply: levels=251 max=250 text='\(' sql=1:258 "):
        dbsp.sql(f"select {'(' * 300}a{')' * 300} from t", t=T)


def test_many_unions_are_one() -> None:
    made = dbsp.sql(" union all ".join(["select a from t"] * 700), t=T)
    assert len(made.node.children()) == 700


@pytest.mark.parametrize("sign", [operator.add, operator.sub, operator.mul, lambda a, b: b + a])
def test_a_chain_of_streams(sign: Callable[[Any, Any], Any]) -> None:
    chain = functools.reduce(sign, [dbsp.col("a")] * 3000)
    assert len(_made(T.select(x=chain))) == 1
    expression = resolve(unwrap(chain), T.schema)
    assert pickle.loads(pickle.dumps(expression)) == expression


def test_shared_parts_are_computed_once() -> None:
    """`x - x + 1` a hundred times has 2^100 terms where each is counted by itself."""
    shared = functools.reduce(lambda x, _: x - x + 1, range(100), dbsp.col("a"))
    assert _made(T.select(x=shared)) == [((1,), 1)]
    assert isinstance(found := unwrap(shared), Call)
    assert found.token().startswith("(shared ")


def test_a_failing_row_of_a_chain_leaves_alone() -> None:
    chain = functools.reduce(operator.or_, [dbsp.col("b") // dbsp.col("a") == at for at in range(100)])
    with dbsp.open(dbsp.circuit("c", {"v": T.select(x=chain)})) as run:
        run.push("t", [{"a": 1, "b": 2}, {"a": 0, "b": 2}])
        assert run.step()["v"].to_rows() == [((True,), 1)]
        assert [letter.reason for letter in run.dead_letters()] == ["divide by zero"]
