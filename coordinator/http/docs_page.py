"""`/docs`: the HTTP interface as one page, made from its OpenAPI description alone.

The usual viewers load their scripts from another site. This page loads nothing, so it works without a network.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; background: #fff }
h2 { font: 600 1rem ui-monospace, monospace; margin: 2.2rem 0 .3rem; border-top: 1px solid #ddd; padding-top: 1rem }
h2 b { display: inline-block; min-width: 3.2rem; color: #05568f }
pre, code { font-family: ui-monospace, monospace; font-size: .9em }
pre { background: #f5f5f5; padding: .6rem; overflow-x: auto }
table { border-collapse: collapse } td, th { text-align: left; padding: .1rem 1rem .1rem 0; vertical-align: top }
"""


def docs_page(described: Mapping[str, Any], address: str) -> str:
    """Return the page for an OpenAPI description; its examples use `address`."""
    title = escape(f"{described['info']['title']} {described['info']['version']}")
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}: HTTP interface</title><style>{STYLE}</style>",
        f"<h1>{title}: HTTP interface</h1>",
        '<p>Described for programs in <a href="/openapi.json">/openapi.json</a>. A refusal is'
        ' <code>{"error": {"code", "message", "hint"}}</code>.</p>',
    ]
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            parts += _operation(described, method.upper(), path, operation, address)
    return "\n".join(parts) + "\n</html>\n"


def _operation(
    described: Mapping[str, Any], method: str, path: str, operation: Mapping[str, Any], address: str
) -> Iterator[str]:
    yield f"<h2><b>{method}</b> {escape(path)}</h2>"
    yield f"<p>{escape(operation.get('summary', ''))}</p>"
    if "description" in operation:
        yield f"<p>{_marked(operation['description'])}</p>"
    rows = [*_parameters(operation), *_fields(described, operation)]
    if rows:
        yield "<table><tr><th>name<th>where<th>type<th>default</tr>"
        for row in rows:
            yield "<tr>" + "".join(f"<td>{escape(cell)}" for cell in row) + "</tr>"
        yield "</table>"
    yield f"<pre>{escape(_example(method, path, operation, address))}</pre>"


def _marked(text: str) -> str:
    """Return text with `code` marked."""
    pieces = escape(text).split("`")
    return "".join(f"<code>{piece}</code>" if number % 2 else piece for number, piece in enumerate(pieces))


def _parameters(operation: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    for parameter in operation.get("parameters", ()):
        schema = parameter["schema"]
        default = "required" if parameter.get("required") else _default(schema)
        yield parameter["name"], parameter["in"], _type(schema), default


def _fields(described: Mapping[str, Any], operation: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Yield the fields of a JSON body."""
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    schema = _resolved(described, content.get("schema", {}))
    for name, field in schema.get("properties", {}).items():
        yield name, "body", _type(field), "required" if name in schema.get("required", ()) else _default(field)


def _resolved(described: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema to which this one, or one of its choices, refers; without a reference, the schema itself."""
    for choice in (schema, *schema.get("anyOf", ())):
        if "$ref" in choice:
            found: Mapping[str, Any] = described["components"]["schemas"][choice["$ref"].rpartition("/")[2]]
            return found
    return schema


def _type(schema: Mapping[str, Any]) -> str:
    kinds = [choice.get("type", "object") for choice in schema.get("anyOf", (schema,))]
    return " or ".join(kind for kind in kinds if kind != "null")


def _default(schema: Mapping[str, Any]) -> str:
    return str(schema["default"]).lower() if schema.get("default") is not None else ""


def _example(method: str, path: str, operation: Mapping[str, Any], address: str) -> str:
    content = operation.get("requestBody", {}).get("content", {})
    example = next((given["example"] for given in content.values() if "example" in given), None)
    parts = ["curl"]
    if method != "GET":
        parts.append(f"-X {method}")
    if example is not None:
        parts.append(f"-H 'Content-Type: {next(iter(content))}' -d '{example}'")
    return " ".join([*parts, f"{address}{path}"])
