"""Operators that depend on event time or the clock: windows, watermarks, temporal filters."""
