"""Messages in Avro that begin with the number of their schema, as Confluent's clients write them.

- registry: schemas by their number, from the registry
- program: a schema compiled into instructions for the wanted columns
- decode: the kernel that runs these instructions over many messages
- rows: messages as rows
"""
