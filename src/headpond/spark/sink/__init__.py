"""Writing topics with Spark, exactly once.

In reading order::

    options  What a user asks of a sink, read and checked before anything is asked of a node
    rows     A DataFrame's batches as rows of topics: checked, gathered and sorted by topic
    sink     Writing topics with Spark: the two writers that ``format("headpond")`` asks for. Exactly once
"""
