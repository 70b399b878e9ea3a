"""The reference page of errors: each kind with its exit code, and the messages in the code with their hints."""

from __future__ import annotations

import ast
import html
import re
from collections.abc import Iterator
from pathlib import Path

from dbsp import errors

ROOT = Path(__file__).parents[2]
FOLDERS = ("dbsp", "storage", "io", "coordinator")
VALUE = "…"
"""The sign in a message for a value that is known only at run time."""
DO = {
    "circuit": "fix the program or the SQL text; the message names your line",
    "config": "fix the setting, file name or argument",
    "data": "bytes are wrong: run `coordinator doctor`, restore what it names, or leave the rows out",
    "rows": "`coordinator skip`, or fix the cause",
    "position": "read the view again, and follow it from its step",
    "mismatch": "fix the function, or `coordinator accept-output`",
    "unavailable": "try again when the named system answers",
    "overloaded": "send the rows again later; none was taken",
    "away": "nothing: the service waits",
    "no-room": "free cores of the cluster, or accept the pause with `--yes`",
    "capacity": "raise the named limit, or send less",
    "fenced": "nothing: another coordinator owns the pipeline",
    "engine": "start the version that is named, or accept this one",
    "internal": "report it with the lines above the message",
}


def page() -> str:
    """Return the kinds of errors, then a table of messages and hints for each."""
    found = dict.fromkeys(messages())
    parts = [
        "A message is one line. After it `hint:` says what to do. `…` stands for a value.\n",
        "| kind | code over HTTP | exit code | what to do |\n| --- | --- | --- | --- |",
    ]
    parts += [
        f"| [`{kind.__name__}`](#{kind.__name__.lower()}) | `{code}` | {kind.exit_code} | {DO[code]} |"
        for code, kind in errors.KINDS.items()
    ]
    for kind in errors.KINDS.values():
        rows = sorted((message, hint) for name, message, hint in found if name == kind.__name__)
        parts.append(f"\n## {kind.__name__}\n\n{(kind.__doc__ or '').splitlines()[0]}\n")
        if rows:
            parts += [
                "| message | hint |\n| --- | --- |",
                *(f"| {_cell(text)} | {_cell(hint)} |" for text, hint in rows),
            ]
    return "\n".join(parts) + "\n"


def messages() -> Iterator[tuple[str, str, str]]:
    """Yield kind, message and hint of each error that the code makes with a message of its own."""
    kinds = {kind.__name__ for kind in errors.KINDS.values()}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Name)
                    and node.func.id in kinds
                    and node.args
                ):
                    message = text_of(node.args[0])
                    if message is not None and re.search("[a-z]{3}", message):
                        yield node.func.id, message, (text_of(node.args[1]) or "") if len(node.args) > 1 else ""


def text_of(node: ast.expr) -> str | None:
    """Return a literal text, with `…` for each value in it; None for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(each.value if isinstance(each, ast.Constant) else VALUE for each in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = text_of(node.left), text_of(node.right)
        return None if left is None or right is None else left + right
    return None


def _cell(text: str) -> str:
    escaped = html.escape(" ".join(text.split()), quote=False)
    return re.sub(r"([\\|*_\[\]`])", r"\\\1", escaped)
