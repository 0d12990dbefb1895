"""Commands that run on Spark.

In reading order::

    pipeline  ``headpond spark run`` and ``check``: a pipeline's file, run or checked
    audit     ``headpond spark audit``: the messages sent compared with those received
    jobs      archive, compact, replay, reshard, prepare; and the group of all these commands
"""
