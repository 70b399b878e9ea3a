"""The names of the hot strategies."""

ICADD, REDISTRIBUTE = "icadd", "redistribute"
STRATEGIES = (ICADD, REDISTRIBUTE)
