"""``headpond spark``: the pipeline commands and all jobs in one group."""

from __future__ import annotations

from headpond.cli.spark.archive import archive, compact
from headpond.cli.spark.audit import audit
from headpond.cli.spark.pipeline import spark_app
from headpond.cli.spark.prepare import prepare
from headpond.cli.spark.replay import replay, reshard

for job in (audit, archive, compact, replay, reshard, prepare):
    spark_app.command()(job)
