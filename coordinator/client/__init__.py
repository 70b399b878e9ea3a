"""The client of a running service, for Python programs and the command line.

Module `client` has `dbsp.Client`; `connection` and `liveness` find the service and notice its end. The modules `bodies`,
`file_parts`, `file_push` and `unpacking` turn rows and files into pushes. None of them imports the engine.
"""
