"""`dbsp.testing` on circuits that are right, and on planted bugs that it must find."""

from __future__ import annotations

from typing import Any

import pytest

import dbsp
from dbsp import testing

pytest_plugins = ["pytester"]

ORDERS = dbsp.table("orders", {"id": dbsp.INT64, "shop": dbsp.STRING, "euros": dbsp.INT64}, primary_key="id")
SHOPS = dbsp.table("shops", {"shop": dbsp.STRING, "town": dbsp.STRING})
CIRCUIT = dbsp.circuit(
    "kit",
    {
        "totals": ORDERS.group_by("shop").aggregate(n=dbsp.count(), mean=dbsp.avg("euros")),
        "towns": ORDERS.join(SHOPS, on="shop").select("id", "town"),
    },
)
ROWS = {
    "orders": [{"id": n % 9, "shop": "abc"[n % 3], "euros": n} for n in range(14)],
    "shops": [{"shop": "a", "town": "Ulm"}, {"shop": "a", "town": "Ulm"}, {"shop": "b", "town": None}],
}
ORACLES = {
    "totals": "select shop, count(*) as n, avg(euros) as mean from orders group by shop",
    "towns": lambda tables: [
        {"id": order["id"], "town": shop["town"]}
        for order in tables["orders"].to_pylist()
        for shop in tables["shops"].to_pylist()
        if order["shop"] == shop["shop"]
    ],
}


def test_a_right_circuit_passes() -> None:
    testing.check(CIRCUIT, ROWS, ORACLES, seeds=range(4))


def test_a_wrong_oracle_is_told_with_its_seed() -> None:
    with pytest.raises(AssertionError, match=r"seed 3, step \d+.*\n[-+] .*(\n.*)*seeds=\[3\].*(\n.*)*push orders"):
        testing.check(CIRCUIT, ROWS, {"totals": "select shop, 1 as n, 1.0 as mean from orders"}, seeds=[3])


def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes whose retractions are lost."""
    real = dbsp.Run.output

    def lossy(run: dbsp.Run, step: int, view: str) -> Any:
        batch = real(run, step, view)
        return batch.filter(batch.weight > 0)

    monkeypatch.setattr(dbsp.Run, "output", lossy)
    with pytest.raises(AssertionError, match="the sum of the changes of view"):
        testing.check(CIRCUIT, ROWS, ORACLES, seeds=range(4))


@pytest.mark.parametrize(
    ("rows", "views", "named"),
    [({"gone": []}, {}, "no such table: table=gone"), ({}, {"gone": ""}, "no such view: view=gone")],
)
def test_unknown_names(rows: Any, views: Any, named: str) -> None:
    with pytest.raises(dbsp.CircuitError, match=named):
        testing.check(CIRCUIT, rows, views)


def test_a_story() -> None:
    with testing.given(CIRCUIT, {"orders": ROWS["orders"][:3]}, workers=2) as story:
        story.then("totals", [{"shop": each, "n": 1, "mean": n} for n, each in enumerate("abc")])
        story.when({"shops": ROWS["shops"]}, {"orders": [{"id": 2}]})
        story.then_changed("towns", added=[{"id": 0, "town": "Ulm"}] * 2 + [{"id": 1, "town": None}])
        with pytest.raises(
            AssertionError, match=r"(?s)rows removed from view 'totals'.*- {.*'shop': 'b'.*\+ {.*'shop': 'c'"
        ):
            story.then_changed("totals", removed=[{"shop": "b", "n": 1, "mean": 1.0}])


def test_the_plug_in_shows_rows_and_takes_seeds(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import dbsp
        from dbsp.testing import checking

        t = dbsp.table("t", {"k": dbsp.INT64})

        def test_rows():
            with dbsp.open(dbsp.circuit("c", {"t": t})) as run:
                run.push("t", [{"k": 1}, {"k": 2}])
                run.step()
                assert run.view("t") == [{"k": 1}, {"k": 3}]

        def test_seeds():
            assert checking.DEFAULT["seeds"] == 7
        """
    )
    found = pytester.runpytest_subprocess("-p", "dbsp.testing.plugin", "-p", "no:cacheprovider", "--dbsp-seeds=7")
    found.assert_outcomes(passed=1, failed=1)
    found.stdout.fnmatch_lines(["*the rows differ: - is missing, + is too many*", "*- {'k': 3}*", "*+ {'k': 2}*"])
