"""The registry of connector kinds: register them, list their settings, and make a configured input or output.

A module in this folder registers its kinds by the decorators below. A class that lacks a method or value of the
contract is refused when it is defined. A setting that two kinds of a section have must have one type.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields
from types import MappingProxyType
from typing import Any, TypeVar, get_type_hints

from dbsp.errors import ConfigError
from dbsp.io.connectors.kind import Connector, InputKind, OutputKind, check_option, columns_of
from dbsp.settings import one_of

Input = TypeVar("Input", bound=type[InputKind])
Output = TypeVar("Output", bound=type[OutputKind])
_INPUTS: dict[str, type[InputKind]] = {}
_OUTPUTS: dict[str, type[OutputKind]] = {}
INPUT_KINDS: Mapping[str, type[InputKind]] = MappingProxyType(_INPUTS)
OUTPUT_KINDS: Mapping[str, type[OutputKind]] = MappingProxyType(_OUTPUTS)
KINDS: Mapping[str, Mapping[str, type[Connector]]] = MappingProxyType({"input": INPUT_KINDS, "output": OUTPUT_KINDS})
"""All kinds, by section and name."""
DEFAULT_KIND = "embedded"
_CONTRACTS: Mapping[str, Any] = {"input": InputKind, "output": OutputKind}


def input_kind(made: Input) -> Input:
    """Register a kind of inputs; `TypeError` says what is wrong with it."""
    check_kind(made, INPUT_KINDS)
    _INPUTS[made.kind] = made
    return made


def output_kind(made: Output) -> Output:
    """Register a kind of outputs; `TypeError` says what is wrong with it."""
    check_kind(made, OUTPUT_KINDS)
    _OUTPUTS[made.kind] = made
    return made


def check_kind(made: type[Connector], known: Mapping[str, type[Connector]]) -> None:
    """Raise `TypeError` for a kind that lacks a part of the contract, has a known name, or gives a known setting another type."""
    missing = open_questions(made)
    if missing:
        raise TypeError(
            f"a connector kind lacks parts of its contract: class={made.__name__} missing={', '.join(missing)}"
        )
    if made.section not in _CONTRACTS or not issubclass(made, _CONTRACTS[made.section]):
        raise TypeError(f"a connector kind belongs to no section: class={made.__name__} section={made.section}")
    if made.kind in known:
        raise TypeError(f"two connector kinds have one name: section={made.section} kind={made.kind}")
    contract, types = _CONTRACTS[made.section], types_of(known)
    for name, hint in _types(made).items():
        if hasattr(contract, name) and name not in options(contract):
            raise TypeError(f"a setting has the name of a part of the contract: {made.section}.{name} kind={made.kind}")
        if types.get(name, hint) != hint:
            raise TypeError(
                f"a setting has another type in another connector kind: {made.section}.{name} kind={made.kind}"
            )


def open_questions(made: type[Connector]) -> list[str]:
    """Return the methods and class variables of the contract that a class does not define."""
    asked = {
        name
        for base in inspect.getmro(made)
        for name, hint in vars(base).get("__annotations__", {}).items()
        if str(hint).startswith("ClassVar")
    }
    return sorted({*getattr(made, "__abstractmethods__", ()), *(name for name in asked if not hasattr(made, name))})


def types_of(kinds: Mapping[str, type[Connector]]) -> dict[str, Any]:
    """Return the types of all settings that the kinds of a section have."""
    return {name: hint for made in kinds.values() for name, hint in _types(made).items()}


def _types(made: type[Connector]) -> dict[str, Any]:
    hints = get_type_hints(made)
    return {name: hints[name] for name in options(made)}


def options(made: type[Connector]) -> dict[str, Field[Any]]:
    """Return the settings of a kind."""
    return {each.name: each for each in fields(made)}  # type: ignore[arg-type]  # every kind is a dataclass


def configured(section: str, values: Mapping[str, Any]) -> Any:
    """Return the input or output that a section of the settings describes.

    A setting that only other kinds have is checked as they check it, and otherwise ignored, unless it says that it must be left
    out.

    **Errors** `ConfigError` for an unknown kind, and for a value that a setting cannot have.
    """
    kinds, own = KINDS[section], dict(values)
    kind = own.pop("kind", DEFAULT_KIND)
    one_of(f"{section}.kind", kind, tuple(kinds))
    known = options(kinds[kind])
    for name in [name for name in own if name not in known]:
        value = own.pop(name)
        (each, *_) = (found[name] for found in map(options, kinds.values()) if name in found)
        check_option(section, each, value)
        elsewhere = each.metadata["elsewhere"]
        if elsewhere is not None and value != _default(each):
            raise ConfigError(elsewhere[0].format(kind=kind), elsewhere[1])
    return kinds[kind](**own)


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A table or view that a setting names, and the columns that it names; the kind in use may ignore the setting."""

    setting: str
    what: str
    name: str
    columns: tuple[str, ...] = ()


def named(section: str, values: Mapping[str, Any]) -> list[Named]:
    """Return the tables and views that the settings of a section name, whichever kind has these settings."""
    known = {name: each for kind in KINDS[section].values() for name, each in options(kind).items()}
    found = []
    for key, value in values.items():
        about = known[key].metadata if key in known else {}
        for name in value if about.get("names") else ():
            columns = columns_of({name: value[name]})[name] if about["columns"] else ()
            found.append(Named(setting=f"{section}.{key}", what=about["names"], name=name, columns=columns))
    return found


def _default(each: Field[Any]) -> Any:
    return each.default if each.default_factory is MISSING else each.default_factory()
