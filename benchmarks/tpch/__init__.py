"""TPC-H: a wholesaler's tables, the 22 queries kept as views, and the refresh streams that change them."""
