"""Checks of numbers in settings: each raises `ConfigError` with the setting's name, its value and the bound."""

from __future__ import annotations

import math

from dbsp.errors import ConfigError


def at_least(name: str, value: float, least: float) -> None:
    """Refuse a number that is below a bound, or not finite."""
    if not math.isfinite(value):
        raise ConfigError(f"not a finite number: {name}={value}")
    if value < least:
        raise ConfigError(f"too small: {name}={value} least={least}")


def at_most(name: str, value: float, most: float) -> None:
    """Refuse a number that is above a bound."""
    if value > most:
        raise ConfigError(f"too large: {name}={value} most={most}")
