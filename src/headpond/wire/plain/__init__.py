"""Segments of plain topics: rows of one fixed schema, self-contained.

In reading order::

    columns  The columns of a plain topic, and batches of them made from rows or from a user's table
    ipc      What an Arrow IPC message claims about itself, read from its metadata before its body is touched
    segment  A plain topic's segment: rows of ``PLAIN_SCHEMA``, self-contained, stored by the node as it came
    expiry   A message's own time to live: the reserved header ``headpond-ttl``, in seconds, counted from when
"""
