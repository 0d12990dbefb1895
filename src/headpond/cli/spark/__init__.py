"""Commands that run on Spark.

In reading order::

    pipeline      ``headpond spark run`` and ``check``: a pipeline's file, run or checked
    job_options   the options and the progress line that the jobs share
    prepare       ``headpond spark prepare``: makes sessions of Spark start faster
    archive       ``headpond spark archive`` and ``compact``: a topic as Parquet files
    replay        ``headpond spark replay`` and ``reshard``: messages written to a topic, each once
    audit         ``headpond spark audit``: the messages sent compared with those received
    audit_report  the results of an audit, printed
"""
