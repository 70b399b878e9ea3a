"""Operators as the generated circuits use them: a module per family, each with `extend(inner)` that lists strategies."""
