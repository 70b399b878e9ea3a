"""Operators inside a recursion, whose rows carry the round in which they follow."""
