"""Names for the shell's completion: views and tables of the running service, or none if no service responds."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import click
import httpx
from click.shell_completion import CompletionItem

from dbsp.coordinator.client.client import Client
from dbsp.errors import DbspError

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _names(of: Callable[[Client], list[str]]) -> Complete:
    def complete(context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
        """Return the names that begin with `begun`; completion never fails, and prints no error."""
        options = context.find_root().params
        url = options.get("url")
        client = Client(
            None if url else options.get("pipeline"), url=url, token=options.get("token"), ca=options.get("ca")
        )
        with suppress(DbspError, OSError, httpx.HTTPError):
            return [CompletionItem(name) for name in of(client) if name.startswith(begun)]
        return []

    return complete


VIEWS = _names(lambda client: [*client.views(), "dead_letters"])
TABLES = _names(lambda client: list(client.status()["tables"]))
