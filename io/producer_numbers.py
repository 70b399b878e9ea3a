"""The numbers of one producer's pushes, each of which is stored once; they remain known after their rows are trimmed.

Numbers grow, and some are passed over: a push is refused while the next one is taken, or a producer counts in jumps. A
passed-over number that arrives late was never taken. It must not pass as a repeat, which would lose its rows. So the
gaps are kept, the newest `GAPS_MAX` of them. Below those, numbers are unknown and refused too.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from dataclasses import dataclass, replace

from dbsp.stored.checksums import CRC_BYTES, sealed, unsealed
from dbsp.stored.levels import NEWEST

GAPS_MAX = 64
_OLD = struct.Struct(">QQ")
_HEAD = struct.Struct(">QQQ")
_GAP = struct.Struct(">QQ")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerNumbers:
    """The known numbers of a producer.

    `newest` is the greatest number, and `trimmed` the greatest one whose rows are trimmed, -1 for none. From `known`
    on, numbers inside `gaps`, pairs of first and last, were passed over; all others were taken.

    **Example**

    >>> numbers = ProducerNumbers().take(0).take(3)
    >>> numbers.gaps, [numbers.was_taken(number) for number in range(4)]
    (((1, 2),), [True, False, False, True])
    """

    newest: int = -1
    trimmed: int = -1
    known: int = 0
    gaps: tuple[tuple[int, int], ...] = ()

    def take(self, number: int) -> ProducerNumbers:
        """Return the numbers with one more, which is above all others."""
        gaps = self.gaps if number == self.newest + 1 else (*self.gaps, (self.newest + 1, number - 1))
        known = self.known
        if len(gaps) > GAPS_MAX:
            known, gaps = gaps[0][1] + 1, gaps[1:]
        return replace(self, newest=number, known=known, gaps=gaps)

    def trim(self, number: int) -> ProducerNumbers:
        """Return the numbers with this one's rows trimmed."""
        return replace(self, trimmed=max(self.trimmed, number))

    def without(self, lost: Collection[int], newest: int) -> ProducerNumbers:
        """Return the numbers as if the `lost` ones had been passed over; `newest` is the greatest one that is not lost.

        >>> numbers = ProducerNumbers().take(0).take(1).take(4).take(5)
        >>> left = numbers.without({1, 5}, 4)
        >>> left.newest, [number for number in range(5) if left.was_taken(number)]
        (4, [0, 4])
        """
        gaps = [*self.gaps, *((number, number) for number in lost)]
        gaps = sorted((first, min(last, newest)) for first, last in gaps if first <= newest)
        known = self.known
        if len(gaps) > GAPS_MAX:
            known, gaps = gaps[-GAPS_MAX - 1][1] + 1, gaps[-GAPS_MAX:]
        return replace(self, newest=newest, known=known, gaps=tuple(gaps))

    def was_taken(self, number: int) -> bool | None:
        """Return whether a number up to the newest was taken; None if that is not known any more."""
        if number < self.known:
            return None
        return not any(first <= number <= last for first, last in self.gaps)

    def encoded(self, key: bytes, level: int = NEWEST) -> bytes:
        """Return the numbers as they are stored under a key."""
        head = _HEAD.pack(self.newest + 1, self.trimmed + 1, self.known)
        return sealed(key, head + b"".join(_GAP.pack(*gap) for gap in self.gaps), level)


def decode_numbers(key: bytes, data: bytes | None, where: str) -> ProducerNumbers:
    """Return the numbers that `encoded` stored.

    In data from before gaps were kept, no number below the newest is known.

    **Errors** `DataError` with `where` if the data is damaged.
    """
    if data is None:
        return ProducerNumbers()
    if len(data) != _OLD.size:
        rest = (len(data) - _HEAD.size) % _GAP.size
        data = unsealed(key, data, max(_HEAD.size, len(data) - (rest and CRC_BYTES)), f"{where} part=producers")
    if len(data) == _OLD.size:
        newest, trimmed = (number - 1 for number in _OLD.unpack(data))
        return ProducerNumbers(newest=newest, trimmed=trimmed, known=newest)
    after_newest, after_trimmed, known = _HEAD.unpack_from(data)
    gaps = tuple(_GAP.iter_unpack(data[_HEAD.size :]))
    return ProducerNumbers(newest=after_newest - 1, trimmed=after_trimmed - 1, known=known, gaps=gaps)
