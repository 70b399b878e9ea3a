"""Distributors route rows to the workers that have their state while the state moves, key by key, over many steps.

Module `messages` has their messages; `icadd` and `redistribute` are the two strategies behind one interface. Module
`rounds` runs the distributors of all workers in rounds, as a step does. Module `places` computes directly to which worker
each row of a step is routed. Module `commands` has the migration commands of a step record, `encoding` the stored form of
distributors.
"""
