"""Nested JSON and Arrow into a service, structs out of it; the same after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from dbsp.coordinator.http.kinds import ARROW
from dbsp.coordinator.service import Service
from tests.coordinator.shop import answering, settings, settings_text

CIRCUIT = """
import dbsp
from dbsp import col, count

address = dbsp.struct_of({"street": dbsp.STRING, "zip": dbsp.INT64})
items = dbsp.list_of(dbsp.struct_of({"sku": dbsp.STRING, "price": dbsp.decimal(8, 2)}))
orders = dbsp.table("orders", {"id": dbsp.INT64, "address": address, "items": items}, primary_key="id")
sold = orders.explode("items").unnest("items").select("id", "sku", "price")
places = orders.group_by("address").aggregate(n=count())
pipeline = dbsp.circuit("shop", {"orders": orders.select("id", "address"), "sold": sold, "places": places})
"""
ELM, OAK = {"street": "Elm", "zip": 7}, {"street": "Oak", "zip": None}
LINES = b"""{"id": 1, "address": {"street": "Elm", "zip": 7}, "items": [{"sku": "a", "price": "1.50"}, {"sku": "b"}]}
{"insert": {"id": 2, "address": {"street": "Elm", "zip": 7}, "items": []}}
{"id": 3, "address": {"street": "Elm", "town": "x"}}
{"id": 4, "items": [{"sku": "a"}, {"sku": 5}]}
{"id": 5}
"""
MORE = b'{"id": 2, "address": {"street": "Oak"}}\n{"delete": {"id": 5}}\n'


def rows(client: Any, view: str) -> list[Any]:
    return sorted(client.get(f"/v1/views/{view}").json()["rows"], key=str)


def test_nested_rows_in_and_out(tmp_path: Path) -> None:
    (tmp_path / "circuit.py").write_text(CIRCUIT)
    (tmp_path / "pipeline.toml").write_text(settings_text())
    service = Service(settings(tmp_path))
    service.start(timeout_s=60)
    try:
        with answering(service) as client:
            found = client.post("/v1/tables/orders/rows", content=LINES, params={"wait": "true"}).json()
            reasons = [bad["reason"] for bad in found["bad"]]
            assert reasons == [
                "column address: unknown field: town",
                "column items[2].sku: expected string, found an integer",
            ]
            assert rows(client, "orders") == [
                {"id": 1, "address": ELM},
                {"id": 2, "address": ELM},
                {"id": 5, "address": None},
            ]
            assert rows(client, "sold") == [
                {"id": 1, "sku": "a", "price": "1.50"},
                {"id": 1, "sku": "b", "price": None},
            ]
            sql = "SELECT address.street AS street, n FROM places WHERE address.zip = 7"
            assert client.post("/v1/query", json={"sql": sql}).json()["rows"] == [["Elm", 2]]
            answer = client.get("/v1/views/orders", headers={"Accept": ARROW})
            with pa.ipc.open_stream(answer.content) as reader:
                table = reader.read_all().drop_columns("weight")
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
            again = client.post(
                "/v1/tables/orders/rows?wait=true",
                content=sink.getvalue().to_pybytes(),
                headers={"Content-Type": ARROW},
            )
            assert again.json()["bad_rows"] == 0
            assert rows(client, "sold") == []
    finally:
        service.stop(quiet=True)
    service = Service(settings(tmp_path))
    service.start(timeout_s=60)
    try:
        with answering(service) as client:
            assert client.post("/v1/tables/orders/rows", content=MORE, params={"wait": "true"}).json()["bad_rows"] == 0
            assert rows(client, "places") == [{"address": ELM, "n": 1}, {"address": OAK, "n": 1}]
    finally:
        service.stop(quiet=True)
