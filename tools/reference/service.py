"""Reference pages of what a service answers: its HTTP addresses and its metrics, asked of a service that is not started."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from dbsp.coordinator.http.app import make_app, metrics_of
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import load_config

CIRCUIT = "create table orders (id bigint, amount bigint, primary key (id));\ncreate view all_orders as select * from orders;\n"
SETTINGS = '[pipeline]\nname = "shop"\ncircuit = "shop.sql"\nruntime = "local"\n'


@contextmanager
def _service() -> Iterator[Service]:
    """Yield a service of a small pipeline in a folder that is deleted afterwards."""
    with tempfile.TemporaryDirectory(prefix="dbsp-reference-") as folder:
        (Path(folder) / "shop.sql").write_text(CIRCUIT, encoding="utf-8")
        (Path(folder) / "pipeline.toml").write_text(SETTINGS, encoding="utf-8")
        service = Service(load_config(Path(folder) / "pipeline.toml", environment={}))
        try:
            yield service
        finally:
            service.close()


def http_page() -> str:
    """Return every address with its parameters, body and answers."""
    with _service() as service:
        described = make_app(service).openapi()
    parts = [
        "`/docs` of a running service shows the same, and `/openapi.json` is the description itself."
        " [Access](../operations.md#access-over-http) says which token each needs.\n"
    ]
    addresses = {
        f"{method.upper()} {path}": about
        for path, methods in described["paths"].items()
        for method, about in methods.items()
    }
    shared = set.intersection(*(set(_answers(about)) for about in addresses.values()))
    parts.append("Every address may answer:\n\n| code | meaning |\n| --- | --- |")
    parts.append("\n".join(f"| {code} | {text} |" for code, text in sorted(shared)) + "\n")
    for name, about in addresses.items():
        parts += _address(name, about, described)
        own = [f"{code}: {text}" for code, text in _answers(about) if (code, text) not in shared]
        if own:
            parts.append(f"Answers besides: {'; '.join(own)}.\n")
    return "\n".join(parts) + "\n"


def _address(name: str, about: dict[str, Any], described: dict[str, Any]) -> Iterator[str]:
    """Yield the section of one address."""
    yield f"## `{name}`\n\n{about.get('description') or about.get('summary', '')}\n"
    parameters = about.get("parameters", [])
    if parameters:
        yield "| parameter | in | type | needed |\n| --- | --- | --- | --- |"
        yield (
            "\n".join(
                f"| `{each['name']}` | {each['in']} | {_type(each.get('schema', {}))} |"
                f" {'yes' if each.get('required') else 'no'} |"
                for each in parameters
            )
            + "\n"
        )
    for kind, content in about.get("requestBody", {}).get("content", {}).items():
        yield f"Body: `{kind}`. {_body(content.get('schema', {}), described)}\n"


def _answers(about: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the codes that an address may answer with, and what each means."""
    return [(code, each["description"]) for code, each in about.get("responses", {}).items()]


def _body(schema: dict[str, Any], described: dict[str, Any]) -> str:
    """Return the fields of a body that is a described object."""
    name = schema.get("$ref", "").rpartition("/")[2]
    if not name:
        return ""
    fields = described["components"]["schemas"][name].get("properties", {})
    return "Fields: " + ", ".join(f"`{field}` ({_type(each)})" for field, each in fields.items()) + "."


def _type(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_type(each) for each in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(each)}`" for each in schema["enum"])
    return str(schema.get("type", "any"))


def metrics_page() -> str:
    """Return every metric with its kind and meaning."""
    with _service() as service:
        text = metrics_of(service).decode()
    rows = [
        f"| `{each.name}{'_total' if each.type == 'counter' else ''}` | {each.type} | {each.documentation} |"
        for each in sorted(text_string_to_metric_families(text), key=lambda each: each.name)
        if not each.name.endswith("_created")
    ]
    return (
        "`GET /metrics` answers in Prometheus' text format. [Operations](../operations.md#metrics) has the labels.\n\n"
        "| metric | kind | meaning |\n| --- | --- | --- |\n" + "\n".join(rows) + "\n"
    )
