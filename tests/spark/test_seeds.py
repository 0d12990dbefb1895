"""Seeds on Spark: the same scoreboard as in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headpond.sim.runner import Scoreboard, in_processes, run_plans
from headpond.sim.scenarios import plan_of
from headpond.spark.seeds import run_on_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_eight_seeds_on_spark_show_what_they_show_in_this_process(spark: SparkSession) -> None:
    plans = [plan_of(seed, "power-cut") for seed in range(8)]
    boards: list[Scoreboard] = []
    found = run_on_spark(plans, boards.append)
    here = run_plans(plans, in_processes(2), boards.append)
    found.took_s = here.took_s = 0.0
    assert found == here and found.seeds == 8 and boards
