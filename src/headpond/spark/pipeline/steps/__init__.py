"""The delivery steps of a pipeline, one per file: DataFrames in, DataFrames out.

In reading order::

    dead_letter  ``dead_letter``: rows that fail a predicate go to a topic of their own, with the reason
    dedup        ``dedup``: each identity once, as long as its repeats come within a time of the first
    query        ``sql``: one query and nothing else
    reorder      ``reorder``: the rows of a group in the order of their index
"""
