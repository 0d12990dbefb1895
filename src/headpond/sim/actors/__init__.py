"""The programs of a run.

In reading order::

    actor      A program on a machine: killed, stopped, started again, or run twice at a time
    producer   It sends
    consumer   It consumes and settles
    writer     A driver and its tasks, which write staged batches as Spark does
"""
