"""Work on whole topics, run on Spark: audit, archive, compact, replay, reshard.

Reading order: work (a job's session, its progress, its end), feed (where rows come from), then the jobs. The
audit is sides (both inputs in one form), matching (what became of each message), figures (sums and shares),
orders, results (the folder they go to), picture, audit (all of it), follow (the same over streams). The archive
is archive_folder (what is in it and how files get there), archive, compact. replay and reshard write to topics.

Nothing here loads pyspark before it is used.
"""
