"""Distributors: rows find their state while state moves, key by key, during many steps.

`messages` is what they say, `icadd` and `redistribute` are the two strategies behind one interface, `lockstep` runs the
distributors of all workers as one step does, `places` says at once where a step's rows pass, `commands` is what a step
record says of them, `encoding` their bytes.
"""
