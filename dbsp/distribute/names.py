"""What the hot strategies are called."""

ICADD, REDISTRIBUTE = "icadd", "redistribute"
STRATEGIES = (ICADD, REDISTRIBUTE)
