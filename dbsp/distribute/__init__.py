"""Distributors: they route rows to their state while state moves between workers, key by key, over many steps.

Module `messages` has their messages; `icadd` and `redistribute` are the two strategies behind one interface. Module
`lockstep` runs the distributors of all workers in rounds, as a step does. Module `places` computes directly where a
step's rows pass. Module `commands` has the migration commands of a step record, `encoding` the stored form of
distributors.
"""
