"""Operators that look at time: windows, watermarks, the clock."""
