"""The programs of a run.

In reading order::

    actor      A program on its own machine, killed and started again
    producer   It sends
    consumer   It consumes and settles
    writer     A driver and its tasks, which write staged batches as Spark does
"""
