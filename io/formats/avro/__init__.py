"""Messages in Avro with the number of their schema in front, as Confluent's clients write them.

registry    schemas by their number, from the registry
program     a schema as instructions for the columns that are wanted
decode      the kernel that runs them over many messages
rows        messages as rows
"""
