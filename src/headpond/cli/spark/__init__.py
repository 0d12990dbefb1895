"""Commands that run on Spark.

In reading order::

    pipeline  ``headpond spark``: pipelines run and checked; the jobs stand in files of their own
    prepare   ``headpond spark prepare``: sessions of Spark that start faster from then on
    archive   ``headpond spark archive``: a topic as Parquet files, every message once
    audit     ``headpond spark audit``: what was sent against what was received, message by message
    replay    ``headpond spark replay``: an archive, Parquet files or a topic, written to a topic, once in all
"""
