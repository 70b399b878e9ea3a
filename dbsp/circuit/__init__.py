"""The logical circuit: its nodes, and how it is built, named, drawn, compared and loaded.

The name `dbsp.circuit` is also the function that builds a circuit. Import from the modules below by
`from dbsp.circuit.nodes import …`.
"""
