"""The reference pages are made from code, and say all of it."""

from __future__ import annotations

import pytest

import dbsp
from dbsp.coordinator.commands import cli
from dbsp.errors import KINDS
from tools import reference
from tools.reference import errors, settings


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return dict(reference.pages())


def test_every_setting_has_a_meaning_and_no_other_name() -> None:
    named = {(section, name) for section, inside in settings.meanings().items() for name in inside}
    assert {(section, name) for section, name, _, _ in settings.settings()} == named
    assert len(named) > 90


def test_types_and_defaults_are_those_of_the_code(pages: dict[str, str]) -> None:
    text = pages["reference/settings.md"]
    assert "| `interval_s` | number | `10.0` | Seconds between two checkpoints. |" in text
    assert "| `retention_steps` | whole number (embedded) | none |" in text


def test_every_command_and_kind_of_error_is_there(pages: dict[str, str]) -> None:
    for name in cli.command.commands:
        assert f"## coordinator {name}\n" in pages["reference/cli.md"]
    for kind in KINDS.values():
        assert f"## {kind.__name__}\n" in pages["reference/errors.md"]
    assert set(errors.DO) == set(KINDS)


def test_every_public_function_is_there(pages: dict[str, str]) -> None:
    text = pages["reference/dsl.md"]
    names = [name for name in dbsp.__all__ if name.islower() and callable(getattr(dbsp, name))]
    assert [name for name in names if f"### dbsp.{name} " not in text] == []
    assert "### Stream.group_by " in text
    assert "### Client.push " in text


def test_messages_have_hints(pages: dict[str, str]) -> None:
    found = list(errors.messages())
    assert len(found) > 500
    assert "| no such file: file=… |" in pages["reference/errors.md"]


def test_addresses_and_metrics_are_there(pages: dict[str, str]) -> None:
    assert "## `POST /v1/tables/{table}/rows`" in pages["reference/http.md"]
    assert "| `dbsp_rows_in_total` | counter |" in pages["reference/metrics.md"]
