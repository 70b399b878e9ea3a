"""The logical circuit: its nodes, how it is built, named, drawn, compared and loaded.

`dbsp.circuit` is also the function that builds one; import from the modules below by `from dbsp.circuit.nodes import
…`.
"""
