"""Writing topics with Spark, exactly once.

In reading order::

    options  the options of a sink, checked before it asks a node
    rows     the batches of a DataFrame as rows of topics: checked, gathered and divided by topic
    sink     the writers for batches and streams
"""
