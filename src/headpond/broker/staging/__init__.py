"""Staged writes: rows stored ahead of their batch, then committed all or none, exactly once.

In reading order::

    stage_file  The bytes of a stage file, and what a node reads from one when it starts. Version 1
    stages      Stages: rows on disk that are in no topic yet, and the files that they share
    writers     Writers: the last batches of each, and whether the newest is published
    compare     Whether a repeated batch has the rows that were committed under its number
    publish     Publishing: the segments of a recorded batch go into the logs of their topics
    requests    Writers listed, shown, deleted
    staging     Stages filled, finished, dropped; a batch of them committed
"""
