"""The reference page of settings: names, types and defaults from the classes of the sections, meanings from `meanings.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from dbsp.coordinator.settings.config import SECTIONS
from dbsp.io.connectors import KINDS, options

MEANINGS = Path(__file__).with_name("meanings.toml")
WORDS = {"str": "text", "int": "whole number", "float": "number", "bool": "true or false", "Path": "path"}


def meanings() -> dict[str, dict[str, str]]:
    """Return what each setting means, by section and name."""
    return tomllib.loads(MEANINGS.read_text(encoding="utf-8"))


def settings() -> Iterator[tuple[str, str, str, str]]:
    """Yield section, name, type and default of every setting."""
    for section, kind in SECTIONS.items():
        if section in KINDS:
            yield section, "kind", "text", '`"embedded"`'
            yield from _of_kinds(section)
            continue
        hints = get_type_hints(kind)
        for each in fields(kind):
            yield section, each.name, type_in_words(hints[each.name]), default_of(each)


def _of_kinds(section: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield the settings of all kinds of inputs or outputs; a default that differs by kind names the kinds."""
    found: dict[str, tuple[str, dict[str, str]]] = {}
    for name, kind in KINDS[section].items():
        hints = get_type_hints(kind)
        for each in options(kind).values():
            found.setdefault(each.name, (type_in_words(hints[each.name]), {}))[1][name] = default_of(each)
    for name, (type_, defaults) in found.items():
        kinds = "" if len(defaults) == len(KINDS[section]) else f" ({', '.join(defaults)})"
        shown = " / ".join(dict.fromkeys(defaults.values()))
        yield section, name, type_ + kinds, shown


def type_in_words(hint: Any) -> str:
    """Return a type as people say it."""
    origin = get_origin(hint)
    if origin is list:
        return "list of texts"
    if origin is not None and issubclass_of_mapping(origin):
        return "table of texts"
    parts = [each for each in get_args(hint) if each is not type(None)]
    if parts:
        return " or ".join(type_in_words(each) for each in parts)
    return WORDS.get(getattr(hint, "__name__", ""), str(hint))


def issubclass_of_mapping(origin: Any) -> bool:
    """Return whether a generic type is a mapping."""
    return isinstance(origin, type) and issubclass(origin, Mapping)


def default_of(each: Field[Any]) -> str:
    """Return a default as TOML writes it; "needed" without one."""
    value = each.default_factory() if each.default_factory is not MISSING else each.default
    if value is MISSING:
        return "needed"
    if value is None or value in ("", [], {}):
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int):
        return f"`{value:_}`"
    return f"`{value}`" if isinstance(value, float) else f'`"{value}"`'


def page() -> str:
    """Return a table of settings for each section."""
    known = meanings()
    parts = [
        "Each setting is looked up in this order: `--set section.key=value`, the environment (`DBSP_SECTION_KEY`),"
        " `pipeline.toml`, the default. An unknown name is refused with the nearest one."
        " Relative paths begin at `pipeline.toml`.\n"
    ]
    last = ""
    for section, name, type_, default in settings():
        if section != last:
            parts.append(f"\n## [{section}]\n\n| setting | type | default | meaning |\n| --- | --- | --- | --- |")
            last = section
        parts.append(f"| `{name}` | {type_} | {default} | {known[section][name]} |")
    return "\n".join(parts) + "\n"
