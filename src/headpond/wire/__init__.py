"""Bytes on a connection and in a file, without IO.

In reading order::

    frame       the envelope of everything on a connection and in a file
    title       TITLE, which sets the context of the frames after it
    plain       segments of plain topics
    typed       segments of typed topics
    record      a stored segment, the same bytes in a log file and in a delivery
    expiry      the time to live of a message, in the header ``headpond-ttl``
    sent_at     when one message of a segment was sent
    filter      the language that selects rows, compiled to Arrow compute
    control     the messages between a client and a node
    connection  the state machine of a connection
"""
