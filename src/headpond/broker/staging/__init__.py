"""Staged writes: rows stored ahead of their batch, then committed all or none, exactly once.

In reading order::

    stage_file  The bytes of a stage file, and what is read from one when a node starts. Version 1
    stages      Stages: rows that are on the disk and in no topic yet, and the files that they share
    writers     Writers: which batches of each were recorded last, and what of the newest is still to be publi
    stores      What staged writes keep on the disk: the stage files and the writers' journal, opened and comm
    compare     Whether a batch that comes again has the rows that were committed under its number
    publish     Publishing: what a recorded batch names goes from its stages into the topics' logs
    staging     Staged writes at the door: stages are filled, finished, dropped; a batch of them is committed,
    requests    Questions about writers, and their deletion
"""
