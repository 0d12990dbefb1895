"""Jobs on whole topics: archive, compact, replay, reshard, audit.

In reading order::

    work            a job on Spark: its session, its progress, and how Ctrl-C ends it
    feed            the inputs of a job: a topic, a folder of Parquet files, or a DataFrame
    archive_folder  the folder of an archive, and how files get there exactly once
    archive         ``archive`` and ``compact``: a topic as Parquet files, every message once
    replay          ``replay``: an archive, other Parquet files or a topic written to a topic, once
    reshard         ``reshard``: a topic copied to one with another number of shards, and compared
    audit           ``audit``: the messages sent compared with those received
"""
