"""Mutation score: small seeded changes of the product, each tried with the tests that cover it (docs/testing.md).

`python -m tools.mutation` measures. The modules: `mutants` makes and samples the changes. `overlay` puts them under a running
Python. `recorder` notes which test reaches which change. `trial` runs the tests of one change. `bounded` ends a trial that uses
too much processor time. `score` counts and compares.
"""
