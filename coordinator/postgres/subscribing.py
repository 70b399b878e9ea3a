"""Parse `SUBSCRIBE`: the view, the steps, and the columns of its rows.

    SUBSCRIBE [TO] view [WITH (SNAPSHOT [= true|false], PROGRESS [= true|false])] [AS OF step] [UP TO step]

The syntax is Materialize's. As everywhere in this project, the view as of step n has the changes of all steps below n.
So `AS OF n` goes on with the changes of step n, and `UP TO n` ends when the view as of step n is complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pyarrow as pa

from dbsp.coordinator.postgres.refusals import NOT_SUPPORTED, SYNTAX, PostgresRefusal
from dbsp.coordinator.postgres.statements import pieces_of, unquoted
from dbsp.coordinator.postgres.variables import is_true

SUBSCRIBE = "SUBSCRIBE"
FORM = "write SUBSCRIBE TO view WITH (SNAPSHOT, PROGRESS) AS OF step UP TO step"
STEP_MAX = (1 << 63) - 1
STEP, PROGRESSED, DIFF = "step", "progressed", "diff"
_FALSE = frozenset({"off", "false", "no", "0"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A SUBSCRIBE: the view, whether to begin with a snapshot, whether to report progress, and the steps."""

    view: str
    snapshot: bool = True
    progress: bool = False
    as_of: int | None = None
    up_to: int | None = None

    def __post_init__(self) -> None:
        """Refuse a snapshot as of an earlier step, because the service does not keep old rows."""
        if self.as_of and self.snapshot:
            raise PostgresRefusal(
                NOT_SUPPORTED, "the rows of a view as of an earlier step are not kept",
                "go on from there WITH (SNAPSHOT = false), or leave AS OF out",
            )  # fmt: skip
        if self.as_of is not None and self.up_to is not None and self.up_to < self.as_of:
            raise PostgresRefusal("22023", f"UP TO is before AS OF: up_to={self.up_to} as_of={self.as_of}")


def subscription_of(sql: str, values: Sequence[tuple[str | None, str | None]] | None = None) -> Subscription:
    """Parse a SUBSCRIBE; `values` are those of its parameters, None if they are not known yet.

    **Errors** `PostgresRefusal` for another form, and for parts of Materialize's that do not exist here.

    **Example**

    >>> subscription_of("subscribe to v with (snapshot = false, progress) as of 7")
    Subscription(view='v', snapshot=False, progress=True, as_of=7, up_to=None)
    """
    words = pieces_of(sql)[1:]
    if words[:1] == ["TO"] and words[1:]:
        words = words[1:]
    if words[:1] == ["("]:
        raise PostgresRefusal(
            NOT_SUPPORTED, "only views can be followed, not queries",
            "make the query a view of the circuit, which is kept up to date, and follow that",
        )  # fmt: skip
    if words[1:2] == ["."]:
        if unquoted(words[0]) != "public":
            raise PostgresRefusal("3F000", f'schema "{unquoted(words[0])[:60]}" does not exist', "leave the schema out")
        words = words[2:]
    if not words or words[0] in ("WITH", "AS", "UP"):
        raise PostgresRefusal(SYNTAX, "no view to follow", FORM)
    return _with_clauses(Subscription(view=unquoted(words[0])), words[1:], values)


def _with_clauses(
    found: Subscription, words: Sequence[str], values: Sequence[tuple[str | None, str | None]] | None
) -> Subscription:
    given = dict[str, Any]()
    rest = list(words)
    while rest:
        match rest:
            case ["WITH", "(", *_] if ")" in rest:
                end = rest.index(")")
                given |= dict(_options(rest[2:end]))
                rest = rest[end + 1 :]
            case ["AS", "OF", "AT", *_]:
                raise PostgresRefusal(NOT_SUPPORTED, "AT LEAST is not supported", "write AS OF and a step")
            case ["AS", "OF", _, *_] | ["UP", "TO", _, *_]:
                size = 4 if rest[2] == "$" else 3
                given["as_of" if rest[0] == "AS" else "up_to"] = _step("".join(rest[2:size]), values)
                rest = rest[size:]
            case ["ENVELOPE" | "WITHIN", *_]:
                raise PostgresRefusal(
                    NOT_SUPPORTED, f"SUBSCRIBE … {rest[0]} is not supported", "rows come with `diff`, their weight"
                )
            case _:
                raise PostgresRefusal(SYNTAX, f'syntax error at or near "{rest[0][:60]}"', FORM)
    if given.get("as_of", 0) is None:  # the statement is only described: its parameters have no values yet
        given["as_of"] = 0
    return replace(found, **given)


def _options(words: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Yield the options between the parentheses."""
    for option in " ".join(words).split(" , "):
        name, *rest = option.replace("= ", "").split(" ") if option else [""]
        value = unquoted(rest[0]) if rest else "true"
        if name not in ("SNAPSHOT", "PROGRESS"):
            raise PostgresRefusal(NOT_SUPPORTED, f"an option that is not supported: {name[:40]}", FORM)
        if len(rest) > 1 or not (is_true(value) or value in _FALSE):
            raise PostgresRefusal("22023", f"not true or false: {name} = {' '.join(rest)[:40]}", FORM)
        yield name.lower(), is_true(value)


def _step(word: str, values: Sequence[tuple[str | None, str | None]] | None) -> int | None:
    """Return a step, or the value of a parameter; None for one that has no value yet."""
    text: str | None = unquoted(word)
    if word.startswith("$"):
        place = int(word[1:]) if word[1:].isdecimal() and len(word) < 6 else 0  # noqa: PLR2004 - more than there can be
        if values is None and place:
            return None
        if values is None or not 1 <= place <= len(values):
            raise PostgresRefusal("08P01", f"a parameter without a value: {word[:20]}", "bind a value to it")
        text = values[place - 1][1]
    if text is None or not text.isascii() or not text.isdecimal() or int(text[:20]) > STEP_MAX:
        raise PostgresRefusal("22023", f"not a step: {str(text)[:40]!r}", "give a step, such as 17")
    return int(text)


def parameters_of(sql: str) -> int:
    """Return the highest parameter number of a statement.

    >>> parameters_of("subscribe to v as of $1 up to $2")
    2
    """
    pieces = pieces_of(sql)
    numbers = [word for sign, word in pairwise(pieces) if sign == "$"]
    return max((int(word) for word in numbers if word.isdecimal() and len(word) < 5), default=0)  # noqa: PLR2004


def followed_schema(columns: pa.Schema, *, progress: bool) -> pa.Schema:
    """Return the columns of a SUBSCRIBE: the step, the mark of progress, the weight, and the view's columns.

    An added column whose name the view also has gets two underscores before its name.
    """
    own = [(STEP, pa.int64()), (PROGRESSED, pa.bool_()), (DIFF, pa.int64())]
    heads = [
        pa.field(f"__{name}" if name in columns.names else name, type_)
        for name, type_ in own
        if progress or name != PROGRESSED
    ]
    return pa.schema([*heads, *(pa.field(each.name, each.type) for each in columns)])


def with_heads(schema: pa.Schema, step: int, table: pa.Table) -> pa.Table:
    """Convert rows with weights in the last column to this schema."""
    count, has_progress = len(table), len(schema) > table.num_columns + 1
    heads = [pa.repeat(pa.scalar(step, pa.int64()), count)]
    if has_progress:
        heads.append(pa.repeat(pa.scalar(False), count))
    return pa.table([*heads, table.column(table.num_columns - 1), *table.columns[:-1]], schema=schema)


def progress_row(schema: pa.Schema, step: int) -> pa.Table:
    """Return the row of progress: all changes of the steps below this one were sent."""
    first = [pa.array([step], pa.int64()), pa.array([True])]
    return pa.table([*first, *(pa.nulls(1, field.type) for field in list(schema)[2:])], schema=schema)
