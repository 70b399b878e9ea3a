"""The settings of a pipeline: `pipeline.toml`, the environment and the command line as checked values.

Begin with `config`. Sections that belong to one protocol are beside it (`dbsp.coordinator.http.section`).
"""
