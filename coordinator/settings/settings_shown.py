"""The settings in force as JSON values: each with its value, its default, and the place where it was set.

Values that are secrets, or may contain one, are never shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

from dbsp.coordinator.settings.config import SECTIONS, Config, is_secret
from dbsp.diagnostics.secrets import HIDDEN, without_login
from dbsp.io.connectors.registry import DEFAULT_KIND


def settings_as_json(config: Config) -> dict[str, Any]:
    """Return all settings, section by section; of inputs and outputs those of the kind in use."""
    return {
        "folder": str(config.folder),
        "settings": [each for section in SECTIONS for each in _section(config, section)],
    }


def _section(config: Config, section: str) -> Iterator[dict[str, Any]]:
    found = getattr(config, section)
    kind = getattr(found, "kind", None)
    if kind is not None:
        yield _setting(config, section, "kind", kind, DEFAULT_KIND)
    for each in fields(found):
        yield _setting(config, section, each.name, getattr(found, each.name), _default(each))


def _setting(config: Config, section: str, key: str, value: Any, default: Any) -> dict[str, Any]:
    origin = config.origins.get(f"{section}.{key}")
    return {
        "section": section, "key": key, "value": _shown(section, key, value), "default": _shown(section, key, default),
        "set": origin is not None, "origin": origin or "default",
    }  # fmt: skip


def _default(each: Field[Any]) -> Any:
    """Return the default of a setting; None for one that must be given."""
    if each.default_factory is not MISSING:
        return each.default_factory()
    return None if each.default is MISSING else each.default


def _shown(section: str, key: str, value: Any) -> Any:
    """Return a value as JSON, without secrets; an empty value hides nothing."""
    if value and is_secret(section, key):
        return HIDDEN
    if isinstance(value, str | Path):
        return without_login(str(value))
    if isinstance(value, Mapping):
        return {str(name): _shown(section, key, item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(section, key, item) for item in value]
    return value
