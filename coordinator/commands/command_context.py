"""The context of a command: the client of the service, and the way to show results."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from dbsp.coordinator.client.client import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandContext:
    """The settings that the command was given, its client, and whether it prints JSON."""

    pipeline: Path
    client: Client
    as_json: bool

    def show(self, answer: Any, text: str) -> None:
        """Print the service's own response as JSON, or the text."""
        click.echo(json.dumps(answer) if self.as_json else text)
