"""Temporal filters: a comparison with `now()` becomes the clock values at which a row enters and leaves the result."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TypeVar

import pyarrow as pa

from dbsp.algebra.temporal_filter import TemporalFilter
from dbsp.diagnostics.source_lines import SourceLine
from dbsp.errors import CircuitError
from dbsp.expr.build import Expr, greatest, least
from dbsp.expr.expression import Call, Expression, conjuncts
from dbsp.expr.logic import AND
from dbsp.expr.methods.applied import unwrap
from dbsp.expr.now import HINT, ClockSpan, has_now, span_of
from dbsp.expr.resolving import resolve
from dbsp.stream.handle import Handle

S = TypeVar("S", bound=Handle)
ENTERS, LEAVES = "__enters", "__leaves"


def clocked(stream: S, predicate: Expression, source: SourceLine | None) -> S:
    """Return the rows for which a condition with comparisons to `now()` is true; they enter and leave as the clock advances."""
    parts = list(conjuncts(predicate))
    spans = [span_of(part) for part in parts if has_now(part)]
    for span in spans:
        _check(stream, span)
    moments = list({span.at.token(): span.at for span in spans}.values())
    present = [Expr(at).is_not_null() for at in moments if resolve(at, stream.schema).nullable(stream.schema)]
    plain = [part for part in parts if not has_now(part)] + [unwrap(each) for each in present]
    below = stream
    if plain:
        below = below._filtered(reduce(lambda a, b: Call(AND, (a, b)), plain), source)
    enters = _moment([span for span in spans if span.enters], latest=True)
    leaves = _moment([span for span in spans if not span.enters], latest=False)
    named = {name: moment for name, moment in ((ENTERS, enters), (LEAVES, leaves)) if moment is not None}
    timed = below._selected([*((name, name) for name in below.columns), *named.items()], source)
    node = TemporalFilter(
        input=timed.node, enters=ENTERS if enters is not None else None, leaves=LEAVES if leaves is not None else None,
        schema=below.schema, source=source,
    )  # fmt: skip
    return stream._made(node)


def _check(stream: Handle, span: ClockSpan) -> None:
    """Refuse to compare the clock with anything but a timestamp that depends on the row."""
    type_ = resolve(span.at, stream.schema).type(stream.schema)
    if not pa.types.is_timestamp(type_) or not span.at.columns():
        raise CircuitError(f"now() is compared with a timestamp of the row: got={span.at} type={type_}", HINT)


def _moment(spans: Sequence[ClockSpan], latest: bool) -> Expr | None:
    """Return the clock value, in microseconds since 1970, at which the comparisons change, or None without comparisons.

    With `latest` all of them are true from this value on; otherwise the first becomes false there.
    """
    made = [Expr(span.at).epoch("microsecond") + span.shift_us for span in spans]
    if len(made) > 1:
        return greatest(*made) if latest else least(*made)
    return made[0] if made else None
