"""The steps of a pipeline, one kind per file: DataFrames in, DataFrames out.

In reading order::

    query        ``sql`` and ``route``: one query, and rows divided by predicates
    python       ``python``: a function of the user's
    dedup        ``dedup``: each identity once, if its repeats come within a time of the first
    reorder      ``reorder``: the rows of a group in the order of their index
    dead_letter  ``dead_letter``: rows that fail a predicate go to a topic, with the reason
"""
