"""Reading topics with Spark, in batches and as a stream.

In reading order::

    schema    the columns of a DataFrame over topics, in types of Spark and of Arrow
    plan      the topics and ranges to read, divided into tasks
    batch     ``spark.read``, and a task: it fetches ranges of shards directly from the node
    offset    how far a stream has read: the JSON in Spark's checkpoint, and the limits of a batch
    standing  whether the node still has what a stream has read: topics deleted, re-created or restored
    stream    ``spark.readStream``
"""
