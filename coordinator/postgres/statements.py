"""Split a text into statements, and find the kind of each by its first words.

`dbsp.coordinator.query` parses each SELECT, in its own process. **Cost** linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from dbsp.coordinator.postgres.refusals import PostgresRefusal
from dbsp.coordinator.query.listing import listing

_PIECE = re.compile(
    r"(?P<space>\s+|--[^\n]*)|(?P<escaped>[eE]')|(?P<word>[^\W\d]\w*|\d[\w.]*)|(?P<quote>['\"])|(?P<dollar>\$(?:[^\W\d]\w*)?\$)"
    r"|(?P<comment>/\*)|(?P<semicolon>;)|(?P<other>.)",
    re.DOTALL,
)
_END_OF_ESCAPED = re.compile(r"(?:[^'\\]|''|\\.)*+'", re.DOTALL)
_ENDS = {"'": re.compile(r"(?:[^']|'')*+'"), '"': re.compile(r'(?:[^"]|"")*+"')}
_COMMENT = re.compile(r"/\*|\*/")
WORDS_MAX = 12
LISTS = frozenset({"SHOW", "DESCRIBE", "DESC"})
READS = frozenset({"SELECT", "WITH", "VALUES", "TABLE", "(", "EXPLAIN"})
WRITES = frozenset(
    [
        "INSERT",
        "UPDATE",
        "DELETE",
        "MERGE",
        "TRUNCATE",
        "CREATE",
        "ALTER",
        "DROP",
        "GRANT",
        "REVOKE",
        "COMMENT",
        "REFRESH",
        "REINDEX",
        "VACUUM",
        "ANALYZE",
        "CLUSTER",
        "CALL",
        "DO",
        "LOCK",
        "IMPORT",
        "REASSIGN",
        "SECURITY",
        "LOAD",
        "NOTIFY",
        "CHECKPOINT",
    ]
)


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement: its text, and its first words in capitals, quoted ones as they are."""

    text: str
    words: tuple[str, ...]

    @property
    def verb(self) -> str:
        """Return the first word."""
        return self.words[0] if self.words else ""

    @property
    def is_read(self) -> bool:
        """Return whether the statement begins like a SELECT, or lists views or columns."""
        return self.verb in READS or (self.verb in LISTS and listing(self.text) is not None)


def split(sql: str) -> list[Statement]:
    """Return the nonempty statements of a text.

    **Errors** `PostgresRefusal` for a string or a comment without an end.

    **Example**

    >>> [each.text for each in split("select ';' ; -- one; two\\n commit;;")]
    ["select ';'", 'commit']
    """
    found: list[Statement] = []
    words: list[str] = []
    begin = None
    end = 0
    for kind, text, first, last in _pieces(sql):
        if kind == "semicolon":
            if begin is not None:
                found.append(Statement(sql[begin:end], tuple(words)))
            begin, words = None, []
            continue
        if kind in ("space", "comment"):
            continue
        begin = first if begin is None else begin
        end = last
        if len(words) < WORDS_MAX:
            words.append(text.upper() if kind == "word" else text)
    if begin is not None:
        found.append(Statement(sql[begin:end], tuple(words)))
    return found


def _pieces(sql: str) -> Iterator[tuple[str, str, int, int]]:
    """Yield (kind, text, first, last) of every piece."""
    at = 0
    while at < len(sql):
        found = _PIECE.match(sql, at)
        assert found is not None  # noqa: S101 - the last alternative takes any character
        kind, end = str(found.lastgroup), found.end()
        match kind:
            case "escaped":
                end = _end(_END_OF_ESCAPED, sql, end, "quoted string")
            case "quote":
                end = _end(_ENDS[found[0]], sql, end, "quoted string")
            case "dollar":
                place = sql.find(found[0], end)
                if place < 0:
                    raise PostgresRefusal("42601", "unterminated dollar-quoted string")
                end = place + len(found[0])
            case "comment":
                end = _end_of_comment(sql, end)
        yield kind, sql[at:end], at, end
        at = end


def _end(pattern: re.Pattern[str], sql: str, at: int, what: str) -> int:
    found = pattern.match(sql, at)
    if found is None:
        raise PostgresRefusal("42601", f"unterminated {what}")
    return found.end()


def _end_of_comment(sql: str, at: int) -> int:
    depth = 1
    while depth:
        found = _COMMENT.search(sql, at)
        if found is None:
            raise PostgresRefusal("42601", "unterminated /* comment")
        depth += 1 if found[0] == "/*" else -1
        at = found.end()
    return at


def located(sql: str) -> list[tuple[str, int, int]]:
    """Return all words and signs of a statement with their places, words in capitals unless quoted."""
    return [
        (text.upper() if kind == "word" else text, first, last)
        for kind, text, first, last in _pieces(sql)
        if kind not in ("space", "comment")
    ]


def pieces_of(sql: str) -> list[str]:
    """Return all words and signs of a statement, words in capitals unless quoted."""
    return [text for text, _, _ in located(sql)]


def unquoted(piece: str) -> str:
    """Return the value of a piece: a string or a name without its quotes, a word in small letters.

    **Example**

    >>> unquoted("'it''s'"), unquoted('"A"'), unquoted("ISO")
    ("it's", 'A', 'iso')
    """
    for quote in ("'", '"'):
        if len(piece) > 1 and piece[0] == piece[-1] == quote:
            return piece[1:-1].replace(quote * 2, quote)
    return piece.lower()


def value_part(piece: str) -> str:
    """Return a piece of a list of values: a string without its quotes, a quoted name as it is, a word in small letters."""
    with suppress(IndexError):
        if piece[0] == "'":
            return unquoted(piece)
    return piece if piece.startswith('"') else piece.lower()
