"""The fingerprint of a circuit: a hash of what it computes, stored in every checkpoint.

It covers structure, schemas, parameters, expressions and the normalised source of user functions. It does not cover the
circuit's name, file names, line numbers or the order in which streams were written. State made under one fingerprint is not
opened under another, and the error names the first node that differs.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Sequence
from dataclasses import is_dataclass
from typing import Any

from dbsp.circuit.graph import CircuitGraph, nodes_of
from dbsp.circuit.nodes import Node
from dbsp.expr.constants import canonical
from dbsp.expr.type_names import schema_name
from dbsp.stored import stored_fields, stored_name
from dbsp.zset.schema import Schema

FORMAT = "dbsp circuit 8"
LABEL_LENGTH_MAX = 120
NodeToken = tuple[str, str]


def parameters(node: Node) -> str:
    """Return the canonical text of a node's kind and its parameters, under their stored names."""
    named = (f"{name}={token_of(value)}" for name, value in stored_fields(node))
    return " ".join([stored_name(type(node)), *named])


def token_of(value: Any) -> str:
    """Return the canonical text of a parameter: a value with its own `token`, a schema, a tuple, a dataclass or a constant."""
    if hasattr(value, "token"):
        return str(value.token())
    if isinstance(value, Schema):
        return schema_name(value)
    if isinstance(value, tuple):
        return "[" + " ".join(map(token_of, value)) + "]"
    if is_dataclass(value):
        named = (f"{name}={token_of(part)}" for name, part in stored_fields(value))
        return f"{stored_name(type(value))}({' '.join(named)})"
    return canonical(value)


def node_tokens(circuit: CircuitGraph) -> list[NodeToken]:
    """Return a (label, token) per node in order, then per view, then for the error policy; labels are for people only."""
    nodes = nodes_of(circuit)
    numbers = {id(node): index for index, node in enumerate(nodes)}
    tokens, ordered = [], dict(circuit.sorted_by)
    for node in nodes:
        inputs = " ".join(str(numbers[id(child)]) for child in node.children())
        where = f" at {node.source}" if node.source is not None else ""
        tokens.append(
            (_short(str(node)) + where, f"{parameters(node)} schema={schema_name(node.schema)} inputs=[{inputs}]")
        )
    for name, node in circuit.views:
        kept = "materialized" if name in circuit.materialized else "deltas only"
        if name in ordered:
            kept += f" sorted by {','.join(ordered[name])}"
        tokens.append((f"view {name}", f"view {name} {kept} inputs=[{numbers[id(node)]}]"))
    tokens.append(("error policy", f"error policy {circuit.error_policy} inputs=[]"))
    return tokens


def _short(text: str) -> str:
    return text if len(text) <= LABEL_LENGTH_MAX else text[: LABEL_LENGTH_MAX - 1] + "…"


def fingerprint(circuit: CircuitGraph) -> str:
    """Return the SHA-256 of the tokens, as 64 hexadecimal digits."""
    text = "\n".join([FORMAT, *(token for _, token in node_tokens(circuit))])
    return hashlib.sha256(text.encode()).hexdigest()


def explain_difference(old: Sequence[NodeToken], new: Sequence[NodeToken]) -> str:
    """Return the differences between two circuits, one line per node; empty if there is none."""
    before = [token.rsplit(" inputs=", 1)[0] for _, token in old]
    after = [token.rsplit(" inputs=", 1)[0] for _, token in new]
    lines: list[str] = []
    for kind, a, b, c, d in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind == "replace" and b - a == d - c:
            pairs = zip(range(a, b), range(c, d), strict=True)
            lines.extend(
                f"changed: {_was(old[i][0])} -> {new[j][0]}{_detail(before[i], after[j], old[i], new[j])}"
                for i, j in pairs
            )
        elif kind != "equal":
            lines.extend(f"removed: {_was(old[i][0])}" for i in range(a, b))
            lines.extend(f"added: {new[j][0]}" for j in range(c, d))
    if not lines and list(map(_token, old)) != list(map(_token, new)):
        pairs_of = zip(old, new, strict=True)
        lines.extend(f"reads other inputs: {b[0]}" for a, b in pairs_of if a[1] != b[1])
    return "\n".join(lines)


def _was(label: str) -> str:
    """Return a stored label whose line number is marked as one of the earlier file, which may differ now."""
    text, at, place = label.rpartition(" at ")
    return f"{text} (it was at {place})" if at else label


def _token(pair: NodeToken) -> str:
    return pair[1]


def _detail(before: str, after: str, old: NodeToken, new: NodeToken) -> str:
    """Return the part of the tokens that differs, if the labels are alike; else an empty text."""
    if old[0].split(" at ")[0] != new[0].split(" at ")[0]:
        return ""
    start = next(
        (i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after))
    )
    start = max(0, start - 20)
    return f" ({before[start : start + 60]} -> {after[start : start + 60]})"
