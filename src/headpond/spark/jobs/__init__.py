"""Jobs on whole topics: archive, compact, replay, reshard; ``audit`` compares what was sent with what arrived.

In reading order::

    work            A job on Spark: the session it runs in, what it says meanwhile, and how Ctrl-C ends it
    feed            Where a job's rows come from: a topic, a folder of Parquet files, or a DataFrame
    archive_folder  The folder of an archive: what is in it, and how files get there exactly once
    archive         ``archive``: a topic as Parquet files, every message once, whatever happens to the process
    replay          ``replay``: what an archive, other Parquet files or a topic hold, written to a topic, once
    reshard         ``reshard``: a topic as a new one with another number of shards, complete, in order, and c
"""
