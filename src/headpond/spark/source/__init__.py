"""Reading topics with Spark, in batches and as a stream.

In reading order::

    options   What a user says of a source, read and checked before anything is asked of a node
    schema    The columns of a DataFrame over topics: Spark's types of them, and Arrow's that Spark takes with
    offset    How far a stream has read: what Spark keeps in its checkpoint, as JSON
    plan      Which topics are read, from where to where, and how that is cut into tasks
    standing  Whether what a stream has read is still what the node has: topics deleted, re-created or restore
    read      What a task of Spark does: fetches ranges of shards straight from the node
    source    Reading topics with Spark: the schema and the two readers that ``format("headpond")`` asks for
"""
