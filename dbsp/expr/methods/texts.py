"""Methods of text."""

from __future__ import annotations

from typing import Any, Self

from dbsp.expr import dates, digests, documents, encodings, list_functions, patterns, strings
from dbsp.expr.methods.applied import Applied, whole


class TextMethods(Applied):
    """Methods of text: case, parts, search, regular expressions, JSON.

    If an argument is a column, rows with equal arguments are computed together (`dbsp.expr.by_row`).
    """

    __slots__ = ()

    def lower(self) -> Self:
        """Return the text in small letters."""
        return self._call(strings.LOWER)

    def upper(self) -> Self:
        """Return the text in capital letters."""
        return self._call(strings.UPPER)

    def trim(self) -> Self:
        """Remove white space at both ends."""
        return self._call(strings.TRIM)

    def length(self) -> Self:
        """Return the number of characters."""
        return self._call(strings.LENGTH)

    def starts_with(self, text: str | Self) -> Self:
        """Return whether the value begins with this text."""
        return self._with(strings.STARTS_WITH, text=text)

    def ends_with(self, text: str | Self) -> Self:
        """Return whether the value ends with this text."""
        return self._with(strings.ENDS_WITH, text=text)

    def contains(self, text: str | Self) -> Self:
        """Return whether this text occurs in the value."""
        return self._with(strings.CONTAINS, text=text)

    def like(self, pattern: str | Self) -> Self:
        """Return whether SQL's LIKE matches: `%` is any text, `_` any character.

        **Cost** One kernel call per different pattern, if the patterns are those of a column.

        **Example**

        >>> import dbsp
        >>> requests = dbsp.table("requests", {"path": dbsp.STRING})
        >>> rules = dbsp.table("rules", {"prefix": dbsp.STRING, "owner": dbsp.STRING})
        >>> owners = requests.cross_join(rules, where=dbsp.col("path").like(dbsp.col("prefix") + "%")).select("path", "owner")
        >>> with dbsp.open(dbsp.circuit("demo", {"owners": owners})) as run:
        ...     run.push("requests", [{"path": "/a/b"}])
        ...     run.push("rules", [{"prefix": "/a", "owner": "ada"}, {"prefix": "/b", "owner": "bo"}])
        ...     print(run.step()["owners"].to_rows())
        ...     run.delete("rules", [{"prefix": "/a", "owner": "ada"}])
        ...     print(run.step()["owners"].to_rows())
        [(('/a/b', 'ada'), 1)]
        [(('/a/b', 'ada'), -1)]
        """
        return self._with(strings.LIKE, pattern=pattern)

    def regexp_match(self, pattern: str | Self) -> Self:
        """Return whether the regular expression (RE2) matches anywhere in the value."""
        return self._with(patterns.REGEXP_MATCH, pattern=pattern)

    def substr(self, start: int | Self, length: int | Self | None = None) -> Self:
        """Return `length` characters from position `start`; the first position is 1, as in SQL."""
        if length is None and isinstance(start, int):
            return self._call(strings.SUBSTR, options=(whole("start", start), None))
        return self._with(strings.SUBSTR, start=start, length=strings.LONGEST if length is None else length)

    def replace(self, old: str | Self, new: str | Self) -> Self:
        """Replace every `old` with `new`."""
        return self._with(strings.REPLACE, old=old, new=new)

    def concat(self, *others: Any) -> Self:
        """Append other texts; the result is null if one of the texts is null."""
        return self._call(strings.CONCAT, *others)

    def ilike(self, pattern: str | Self) -> Self:
        """Return whether LIKE matches without regard to case."""
        return self._with(strings.ILIKE, pattern=pattern)

    def left(self, count: int | Self) -> Self:
        """Return the first `count` characters."""
        return self._with(strings.LEFT, count=count)

    def right(self, count: int | Self) -> Self:
        """Return the last `count` characters."""
        return self._with(strings.RIGHT, count=count)

    def reverse(self) -> Self:
        """Return the characters from the last to the first."""
        return self._call(strings.REVERSE)

    def repeat(self, count: int | Self) -> Self:
        """Repeat the text `count` times, end to end."""
        return self._with(strings.REPEAT, count=count)

    def title(self) -> Self:
        """Return the text with a capital first letter of every word."""
        return self._call(strings.TITLE)

    def lpad(self, width: int | Self, fill: str | Self = " ") -> Self:
        """Pad the text on the left to a width, or cut it down to that width."""
        return self._with(strings.LPAD, width=width, fill=fill)

    def rpad(self, width: int | Self, fill: str | Self = " ") -> Self:
        """Pad the text on the right to a width, or cut it down to that width."""
        return self._with(strings.RPAD, width=width, fill=fill)

    def strip(self, characters: str | Self) -> Self:
        """Remove any of these characters at both ends."""
        return self._with(strings.STRIP, characters=characters)

    def ltrim(self) -> Self:
        """Remove white space on the left."""
        return self._call(strings.LTRIM)

    def rtrim(self) -> Self:
        """Remove white space on the right."""
        return self._call(strings.RTRIM)

    def position(self, text: str | Self) -> Self:
        """Return the position at which this text first occurs, counted from 1; 0 if nowhere."""
        return self._with(strings.POSITION, text=text)

    def split_part(self, separator: str | Self, number: int | Self) -> Self:
        """Return the number-th part between separators, counted from 1; empty where there are fewer."""
        return self._with(strings.SPLIT_PART, separator=separator, number=number)

    def regexp_count(self, pattern: str) -> Self:
        """Return the number of matches that do not overlap."""
        return self._call(patterns.REGEXP_COUNT, options=(pattern,))

    def regexp_replace(self, pattern: str, new: str, all: bool = True) -> Self:  # noqa: A002 (reads as what it does)
        r"""Replace all matches, or only the first; `\1` in `new` is the first group."""
        return self._call(patterns.REGEXP_REPLACE, options=(pattern, new, bool(all)))

    def regexp_extract(self, pattern: str, group: int | str = 0) -> Self:
        """Return the text of a group of the first match, by number (0: the whole match) or name; null without a match.

        **Example**

        >>> import dbsp
        >>> dbsp.col("url").regexp_extract("channel_id=([0-9]+)", 1)
        url.regexp_extract("channel_id=([0-9]+)", 1)
        """
        return self._call(patterns.REGEXP_EXTRACT, options=(pattern, group))

    def md5(self) -> Self:
        """Return the MD5 digest in 32 hexadecimal digits.

        Use it for keys that other systems compute too, not as a protection against forgery.
        """
        return self._call(digests.MD5)

    def sha256(self) -> Self:
        """Return the SHA-256 digest in 64 hexadecimal digits."""
        return self._call(digests.SHA256)

    def hex(self) -> Self:
        """Return the bytes in capital hexadecimal digits; a text counts as its UTF-8."""
        return self._call(encodings.HEX)

    def from_hex(self) -> Self:
        """Return the bytes that these hexadecimal digits encode; other text fails its row."""
        return self._call(encodings.FROM_HEX)

    def base64(self) -> Self:
        """Return the bytes in base64; a text counts as its UTF-8."""
        return self._call(encodings.BASE64)

    def from_base64(self) -> Self:
        """Return the bytes that this base64 encodes; other text fails its row."""
        return self._call(encodings.FROM_BASE64)

    def levenshtein(self, other: str | Self) -> Self:
        """Return how many letters must be inserted, deleted or changed to turn this text into the other."""
        return self._call(encodings.LEVENSHTEIN, other)

    def json_value(self, path: str) -> Self:
        """Return the value at a path of a JSON text, as text.

        The result is null if the path has no value or a null, or if the text is no JSON.

        **Shape** A string without its quotes, a number as it is written, `true` or `false`, an object or list as JSON.
        Cast the text to the type you need: `.json_value("$.price").cast(dbsp.FLOAT64)`.

        **Cost** Python per different text.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"doc": dbsp.STRING})
        >>> prices = t.select(price=dbsp.col("doc").json_value("$.items[0].price").cast(dbsp.INT64))
        >>> with dbsp.open(dbsp.circuit("demo", {"prices": prices})) as run:
        ...     run.push("t", [{"doc": '{"items": [{"price": 3}]}'}])
        ...     print(run.step()["prices"].to_rows())
        ...     run.delete("t", [{"doc": '{"items": [{"price": 3}]}'}])
        ...     print(run.step()["prices"].to_rows())
        [((3,), 1)]
        [((3,), -1)]
        """
        return self._call(documents.JSON_VALUE, options=(path,))

    def json_elements(self, path: str = "$") -> Self:
        """Return the elements of the list at a path of a JSON text; null if there is no list.

        Each element is a text, as `json_value` returns it.

        **Cost** Python per different text.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"doc": dbsp.STRING})
        >>> items = t.select(item=dbsp.col("doc").json_elements("$.items")).explode("item")
        >>> skus = items.select(sku=dbsp.col("item").json_value("$.sku"))
        >>> with dbsp.open(dbsp.circuit("demo", {"skus": skus})) as run:
        ...     run.push("t", [{"doc": '{"items": [{"sku": "a"}, {"sku": "b"}]}'}])
        ...     print(run.step()["skus"].to_rows())
        ...     run.delete("t", [{"doc": '{"items": [{"sku": "a"}, {"sku": "b"}]}'}])
        ...     print(run.step()["skus"].to_rows())
        [(('a',), 1), (('b',), 1)]
        [(('a',), -1), (('b',), -1)]
        """
        return self._call(documents.JSON_ELEMENTS, options=(path,))

    def json_length(self, path: str = "$") -> Self:
        """Return the number of members of the list or object at a path; null if there is none."""
        return self._call(documents.JSON_LENGTH, options=(path,))

    def strptime(self, format: str) -> Self:  # noqa: A002 (the name users know)
        """Read text in a format such as `%d.%m.%Y` as a timestamp; text that does not fit fails its row."""
        return self._call(dates.STRPTIME, options=(format,))

    def split(self, separator: str) -> Self:
        """Split the text at separators into a list of text; `stream.explode` makes a row of each part."""
        return self._call(list_functions.SPLIT, options=(separator,))
