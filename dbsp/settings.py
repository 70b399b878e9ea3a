"""Check the values of settings: each check raises `ConfigError` with the name, the given value and the allowed values."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence

from dbsp.errors import ConfigError


def at_least(name: str, value: float, least: float) -> None:
    """Raise `ConfigError` if a number is below `least` or not finite."""
    if not math.isfinite(value):
        raise ConfigError(f"not a finite number: {name}={value}")
    if value < least:
        raise ConfigError(f"too small: {name}={value} least={least}")


def at_most(name: str, value: float, most: float) -> None:
    """Raise `ConfigError` if a number is above `most`."""
    if value > most:
        raise ConfigError(f"too large: {name}={value} most={most}")


def one_of(name: str, value: str, known: Sequence[str]) -> None:
    """Raise `ConfigError` if a word is not among the known words; the hint names the most similar one."""
    if value not in known:
        raise ConfigError(f"unknown value: {name}={value}", near(value, known))


def near(name: str, known: Iterable[str]) -> str:
    """Return a hint: the most similar known name, or all known names if none is similar."""
    return similar(name, known) or f"known: {', '.join(sorted(known))}"


def similar(name: str, known: Iterable[str]) -> str | None:
    """Return a hint with the most similar known name, whatever its case; None if none is similar.

    >>> similar("ordrs", ["orders", "names"]), similar("x", ["orders"])
    ('did you mean `orders`?', None)
    """
    folded = {each.casefold(): each for each in known}
    found = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.5)
    return f"did you mean `{folded[found[0]]}`?" if found else None


def seconds_of(setting: str, given: Mapping[str, str], name: str, default: float) -> float:
    """Return the seconds given for a name, or the default; raise `ConfigError` if the text is not a number."""
    try:
        return float(given.get(name, default))
    except ValueError:
        raise ConfigError(f"not a number of seconds: {setting}.{name}={given[name]}") from None
