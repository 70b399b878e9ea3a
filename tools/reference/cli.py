"""The reference page of the two commands, from the definitions of their options."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from dbsp.coordinator import serve
from dbsp.coordinator.commands import cli
from dbsp.coordinator.exits import __doc__ as exits


def page() -> str:
    """Return the page: the service first, then its client with every command, then the exit codes."""
    parts = [
        "`dbsp-coordinator` runs a pipeline. `coordinator` talks to it."
        " Both complete in the shell ([operations](../operations.md#commands-at-a-glance)).\n"
    ]
    parts += _described("dbsp-coordinator", serve.command)
    parts += _described("coordinator", cli.command)
    codes = re.findall(r"^    (\d+) +(.+)$", exits or "", re.MULTILINE)
    parts.append(
        "## Exit codes\n\n| code | meaning |\n| --- | --- |\n"
        + "\n".join(f"| {code} | {text} |" for code, text in codes)
    )
    return "\n".join(parts) + "\n"


def _described(name: str, command: click.Command) -> Iterator[str]:
    """Yield a command's section, then those of the commands below it."""
    yield f"## {name}\n\n{_text(command.help)}\n"
    yield f"```text\n{' '.join([name, *command.collect_usage_pieces(click.Context(command))])}\n```\n"
    rows = [_row(each) for each in command.params if isinstance(each, click.Option) and not each.hidden]
    if rows:
        yield "| option | default | meaning |\n| --- | --- | --- |\n" + "\n".join(rows) + "\n"
    if isinstance(command, click.Group):
        for each, below in sorted(command.commands.items()):
            yield from _described(f"{name} {each}", below)


def _row(option: click.Option) -> str:
    kind = "" if option.is_flag else f" {option.make_metavar(click.Context(click.Command('x')))}"
    shown = option.default if isinstance(option.default, str | int | float) and not option.is_flag else None
    default = "" if shown is None or shown == "" else f"`{shown}`"
    calls = ", ".join(f"`{each}{kind}`" for each in option.opts).replace("|", "\\|")
    return f"| {calls} | {default} | {_text(option.help)} |"


def _text(text: str | None) -> str:
    bare = (text or "").partition("\b")[0].replace("\f", "").strip()
    return " ".join(bare.split()).replace("|", "\\|").replace("<", "&lt;").replace("[", "\\[")
