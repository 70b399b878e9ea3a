"""The kind of rows in a body, for clients, which load no engine."""

from __future__ import annotations

from collections.abc import Sequence

JSON, JSON_LINES, ARROW = "application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream"
CSV, TSV = "text/csv", "text/tab-separated-values"


EVENTS = "text/event-stream"


def chosen(accept: str, offered: Sequence[str]) -> str | None:
    """Return the offered kind that an `Accept` header prefers; the first one without a header, None if it takes none.

    Of kinds with the same `q`, a kind that is named goes before one that a `*` takes, then the order of the header decides.

    >>> chosen("", [JSON, CSV]), chosen("text/csv, */*", [JSON, CSV]), chosen("application/*;q=0.5, image/png", [CSV, JSON])
    ('application/json', 'text/csv', 'application/json')
    >>> chosen("application/xml", [JSON, CSV]), chosen("text/csv;q=0, application/xml", [JSON, CSV])
    (None, None)
    """
    ranges: dict[str, tuple[float, int]] = {}
    for place, part in enumerate(accept.lower().split(",")):
        name, *parameters = (each.strip() for each in part.split(";"))
        if name:
            ranges.setdefault(name, (_quality(parameters), -place))
    if not ranges:
        return offered[0]
    found: str | None = None
    best = (0.0, 0, 0)
    for kind in offered:
        by_rank = enumerate((kind, f"{kind.partition('/')[0]}/*", "*/*"))
        rank, name = next(((rank, name) for rank, name in by_rank if name in ranges), (0, ""))
        quality, place = ranges.get(name, (0.0, 0))
        if quality > 0 and (found is None or (quality, -rank, place) > best):
            found, best = kind, (quality, -rank, place)
    return found


def _quality(parameters: Sequence[str]) -> float:
    """Return the `q` of a media range; 1 where it has none that is a number."""
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                break
    return 1.0


def kind_of(body: bytes) -> str:
    """Return the content type of rows, JSON or an Arrow IPC stream, by their first bytes.

    >>> kind_of(b'{"id": 1}')
    'application/json'
    """
    return ARROW if body.startswith(b"\xff\xff\xff\xff") else JSON
