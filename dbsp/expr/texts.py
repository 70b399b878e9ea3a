"""Texts of expressions: canonical ones, from which fingerprints are made, and ones for people."""

from __future__ import annotations

from typing import Any

from dbsp.expr.constants import canonical, shown
from dbsp.expr.walking import arguments_of, in_order, template


def _options_text(call: Any) -> str:
    return "".join(f" {canonical(option)}" for option in call.options)


def token_parts(node: Any) -> list[Any]:
    """Return the texts and arguments that make up the canonical text of a node."""
    if not hasattr(node, "function"):
        return [node.token()]
    parts: list[Any] = [f"({node.function.name}{_options_text(node)}"]
    for arg in node.args:
        parts += [" ", arg]
    return [*parts, ")"]


def shared_token(root: Any) -> str:
    """Return a canonical text that contains every object once, and refers to it by number elsewhere."""
    numbers: dict[int, int] = {}
    found: list[str] = []
    for node in in_order(root):
        of = "".join(f" #{numbers[id(arg)]}" for arg in arguments_of(node))
        text = f"({node.function.name}{_options_text(node)}{of})" if hasattr(node, "function") else node.token()
        numbers[id(node)] = len(numbers)
        found.append(f"{numbers[id(node)]}={text}")
    return f"(shared {' '.join(found)})"


def shown_parts(node: Any) -> list[Any]:
    """Return the texts and arguments that make up the text of a node for people."""
    if not hasattr(node, "function"):
        return [str(node)]
    parts: list[Any] = [*node.args, *map(shown, node.options)]
    if node.function.text:
        return [parts[part] if isinstance(part, int) else part for part in template(node.function.text)]
    between = [each for part in parts for each in (", ", part)][1:]
    return [f"{node.function.name}(", *between, ")"]
