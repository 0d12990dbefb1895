"""The programs of a run.

In reading order::

    actor      A program on a machine: killed, stopped, started again, or run twice at a time
    producer   It sends
    consumer   It consumes and settles
    reader     It reads by position, as Spark's source does
    admin      It pauses, moves, compacts, creates, deletes, revokes
    writer     A driver and its tasks, which write staged batches as Spark does
"""
