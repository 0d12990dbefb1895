"""Segments of plain topics: rows of one fixed schema, self-contained.

In reading order::

    columns   the schema, and batches made from rows or from a user's table
    ipc       checks of an Arrow IPC message's metadata, before its body is read
    few_rows  a few rows, such as a message that is sent by itself, without Arrow
    segment   encoding and decoding
    many      many small segments decoded at once
    packed    a run of small segments as one stored record
"""
