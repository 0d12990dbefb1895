"""Reading topics with Spark, in batches and as a stream.

In reading order::

    options   the options of a source, checked before it asks a node
    schema    the columns of a DataFrame over topics, in types of Spark and of Arrow
    plan      the topics and ranges to read, divided into tasks
    read      a task of Spark: fetches ranges of shards directly from the node
    batch     ``spark.read``
    offset    how far a stream has read: the JSON in Spark's checkpoint, and the limits of a batch
    standing  whether the node still has what a stream has read: topics deleted, re-created or restored
    stream    ``spark.readStream``
"""
