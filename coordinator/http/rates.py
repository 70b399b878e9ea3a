"""Rate limits per address: a token bucket bounds the requests a second of each."""

from __future__ import annotations

from collections import OrderedDict

ADDRESSES_MAX = 10_000
BURST_S = 2.0


class RateLimiter:
    """Buckets that hold the requests of `BURST_S` seconds and fill by `per_s`; the newest `ADDRESSES_MAX` are remembered."""

    def __init__(self, per_s: int) -> None:
        """Create the limiter without any bucket; with `per_s` 0 it allows every request."""
        self.per_s, self._room = per_s, per_s * BURST_S
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, address: str, now_s: float) -> bool:
        """Take one request of an address out of its bucket; False if the bucket is empty.

        **Example**

        >>> rates = RateLimiter(1)
        >>> [rates.allows("a", now) for now in (0.0, 0.0, 0.0, 1.0, 1.0)], rates.allows("b", 1.0)
        ([True, True, False, True, False], True)
        """
        if not self.per_s:
            return True
        left, at_s = self._left.pop(address, (self._room, now_s))
        left = min(self._room, left + (now_s - at_s) * self.per_s)
        allowed = left >= 1
        self._left[address] = (left - allowed, now_s)
        if len(self._left) > ADDRESSES_MAX:
            self._left.popitem(last=False)
        return allowed
