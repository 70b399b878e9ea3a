"""Aggregates on Spark: the bytes of the in-process runtime, through a checkpoint, a rollback and rescales."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dbsp
from tests.spark.pipelines import MakeRuntime, Pipeline, customers, orders, play

pytestmark = pytest.mark.spark


def cents(rows: Any) -> Any:
    return [(rows.column(0).fill_null(0).to_numpy() * 100).astype("int64")]


def euros(sums: Any) -> Any:
    return sums[:, 0] / 100


def spread(rows: list[dict[str, Any]]) -> float:
    return max(row["amount"] for row in rows) - min(row["amount"] for row in rows)


def circuit() -> dbsp.Circuit:
    aggregates = {
        "n": dbsp.count().where(dbsp.col("amount") > 50.0), "mid": dbsp.median("amount"), "var": dbsp.var_samp("amount"),
        "best": dbsp.arg_max("id", "amount"), "last": dbsp.last("id", order_by="amount"),
        "of_euros": dbsp.linear_aggregate("amount", map=cents, finish=euros, type=dbsp.FLOAT64),
        "spread": dbsp.fold_aggregate("amount", function=spread, type=dbsp.FLOAT64), "ids": dbsp.bit_xor("id"),
    }  # fmt: skip
    views = {
        "by_customer": orders.group_by("customer").aggregate(**aggregates),
        "whole": orders.aggregate(**aggregates),
        "cities": customers.rollup("city", grouping="g").aggregate(names=dbsp.string_agg("customer")),
        "none": orders.filter(dbsp.col("amount") < 0.0).aggregate(n=dbsp.count(), mid=dbsp.median("amount")),
    }
    return dbsp.circuit("aggregates", views)


def life(pipeline: Pipeline) -> None:
    pipeline.run_step()  # without a row: the groups without keys are there
    play(pipeline, 2)
    pipeline.checkpoint()
    play(pipeline, 1)
    pipeline.new_epoch()
    for workers in (pipeline.workers + 1, pipeline.workers):
        pipeline.rescale(workers)
        play(pipeline, 1)


def test_the_bytes_are_those_of_one_process(on_spark: MakeRuntime, tmp_path: Path) -> None:
    one = Pipeline(tmp_path / "a", circuit=circuit())
    other = Pipeline(tmp_path / "b", on_spark, circuit=circuit())
    try:
        life(one)
        life(other)
        assert other.outputs() == one.outputs()
        assert other.views() == one.views()
        assert len(other.outputs()["none"][0]) == 1
    finally:
        one.close()
        other.close()
