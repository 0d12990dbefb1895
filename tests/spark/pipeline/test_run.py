"""Pipelines on real Spark: rows go where the file says, once, also over a restart; faults have lines."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import headpond.sync
from headpond.cli.app import app
from headpond.errors import BadPipeline, PipelineFailed
from headpond.spark.pipeline import Pipeline
from headpond.spark.pipeline.plan import DeadLetter
from headpond.spark.pipeline.run import PipelineRun
from headpond.spark.pipeline.steps import dead_letter
from tests.cli.contract import check

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE = """\
name = "test"
trigger = {{ available_now = true }}

[sources.rows]
parquet = "in"
stream = true
schema = "id bigint, amount double"

[steps.once]
from = "rows"
dedup = {{ by = "id", within = "10m" }}

[steps.doubled]
from = "once"
python = "steps.py:double"

[steps.checked]
from = "doubled"
dead_letter = {{ keep = "amount >= 0", topic = "{topic}.bad", reason = "concat('amount ', amount)" }}

[steps.split]
from = "checked"
route = {{ large = "amount > 100" }}

[sinks.large]
from = "split_large"
topic = "{topic}.large"
id = "cast(id as string)"
value = "to_json(struct(*))"

[sinks.rest]
from = "split_rest"
parquet = "rest"
"""
STEPS = """\
from pyspark.sql import functions as F


def double(rows):
    return rows.withColumn("amount", F.col("amount") * 2)
"""


def write(spark: SparkSession, folder: Path, rows: list[tuple[int, float]]) -> None:
    spark.createDataFrame(rows, "id bigint, amount double").coalesce(1).write.mode("append").parquet(
        str(folder / "in")
    )


def test_rows_reach_their_sinks_once_and_a_restart_continues(
    spark: SparkSession, shared_url: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADPOND_URL", shared_url)
    file = tmp_path / "test.toml"
    file.write_text(FILE.format(topic=topic))
    (tmp_path / "steps.py").write_text(STEPS)
    write(spark, tmp_path, [(1, 10.0), (2, 60.0), (3, -1.0), (1, 10.0)])
    first = CliRunner().invoke(app, ["spark", "run", str(file), "--json"])
    assert first.exit_code == 0, first.output
    check("spark run", first.stdout.encode())
    samples = [json.loads(line) for line in first.stdout.splitlines()]
    assert {sample["sink"] for sample in samples} == {"large", "rest", "checked_dead"}
    write(spark, tmp_path, [(4, 70.0), (2, 60.0)])
    run = Pipeline.load(file).start(spark)
    assert run.wait(timeout=300)
    assert {sample.sink: sample.rows_all for sample in run.samples() if sample.rows} == {
        "large": 2,
        "rest": 2,
        "checked_dead": 2,
    }
    large = spark.read.format("headpond").option("url", shared_url).option("topic", f"{topic}.large").load()
    assert sorted(row.id for row in large.select("id").collect()) == ["2", "4"], "each once, in both runs"
    assert [row.id for row in spark.read.parquet(str(tmp_path / "rest")).select("id").collect()] == [1]
    dead = spark.read.format("headpond").option("url", shared_url).option("topic", f"{topic}.bad").load()
    ((value, headers),) = dead.selectExpr("cast(value as string)", "headers").collect()
    assert json.loads(value) == {"id": 3, "amount": -2.0}
    assert headers == {"headpond-reason": "amount -2.0", "headpond-step": "checked"}


def test_faults_that_spark_finds_have_their_line_in_the_file(spark: SparkSession, tmp_path: Path) -> None:
    write(spark, tmp_path, [(1, 1.0)])
    (tmp_path / "steps.py").write_text(STEPS)
    file = tmp_path / "bad.toml"
    file.write_text(
        dedent('''\
        [sources.rows]
        parquet = "in"
        stream = true

        [steps.one]
        sql = """
          select id,
                 amont
          from rows
        """

        [steps.two]
        sql = "select * from ones"

        [steps.follows]
        sql = "select * from one"

        [steps.three]
        from = "rows"
        python = "steps.py:triple"

        [steps.four]
        from = "rows"
        reorder = { index = "amount", by = "id", wait = "1s" }

        [sinks.out]
        from = "rows"
        topic = "x"
        ''')
    )
    with pytest.raises(BadPipeline) as caught:
        Pipeline.load(file).check(spark)
    faults = [(fault.line, fault.place) for fault in caught.value.faults]
    assert faults == [
        (8, "steps.one.sql"),
        (13, "steps.two.sql"),
        (20, "steps.three.python"),
        (24, "steps.four.reorder"),
        (28, "sinks.out.topic"),
    ], caught.value.message
    assert "amont" in caught.value.faults[0].message
    assert caught.value.faults[1].hint == "There are: rows."
    assert "double" in caught.value.faults[2].hint, "what the file has instead"
    assert "to_json" in caught.value.faults[4].hint


def test_a_sink_that_would_fail_or_lose_a_column_is_refused_before_anything_runs(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [(1, 1.0, "2001-05-05", True)]
    schema = "id bigint, amount double, date string, Out_of_order boolean"
    spark.createDataFrame(rows, schema).write.parquet(str(tmp_path / "in"))
    pipeline = (
        Pipeline("p", checkpoint=tmp_path / "ck")
        .source("rows", parquet=str(tmp_path / "in"), stream=True)
        .source("once", parquet=str(tmp_path / "in"))
        .step("split", from_="rows", route={"home": "no_such = 1"})
        .step("follows", from_="split_home", python=lambda rows: rows)
        .step("too", sql="select * from split_rest")
        .step("ordered", from_="rows", reorder={"index": "id", "by": "amount", "wait": "1s"})
        .step("checked", from_="once", dead_letter={"keep": "id > 0", "topic": "bad"})
        .sink("follows", from_="follows", console=True)
        .sink("too", from_="too", console=True)
        .sink("dated", from_="rows", parquet=str(tmp_path / "a"), by_date="date")
        .sink("number", from_="rows", parquet=str(tmp_path / "b"), by_date="amount")
        .sink("folders", from_="rows", parquet=str(tmp_path / "c"), partition_by=["no_such"])
    )
    for look in (pipeline.check, pipeline.start):
        with pytest.raises(BadPipeline) as caught:
            look(spark)
        faults = {fault.place: fault.message for fault in caught.value.faults}
        assert "no_such" in faults.pop("steps.split")
        assert faults == {
            "steps.ordered.reorder": "the rows have a column out_of_order already",
            "steps.checked.dead_letter": "it has no streaming input: once is a batch read",
            "sinks.dated.parquet": "the rows have a column date, and by_date makes one: theirs would be lost",
            "sinks.number.parquet": "by_date = 'amount' is of type double",
            "sinks.folders.parquet": "partition_by has 'no_such', which is not a column of these rows",
        }


def test_a_check_names_the_fault_of_a_source_or_sink_not_that_python_failed(
    spark: SparkSession, shared_url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def wrong(rows: DataFrame) -> DataFrame:
        return rows.select("vlaue")

    pipeline = (
        Pipeline("wrong", url=shared_url)
        .source("absent", topic="not-there")
        .source("away", topic="x", url="headpond://127.0.0.1:1")
        .source("late", topic="x", start="latest")
        .source("rows", parquet=str(tmp_path), stream=True, schema="value string")
        .step("misspelt", from_="rows", python=wrong)
        .sink("absent", from_="absent", topic="x")
        .sink("away", from_="away", topic="x")
        .sink("late", from_="late", topic="x")
        .sink("out", from_="rows", topic="no topic")
    )
    with pytest.raises(BadPipeline) as caught:
        pipeline.check(spark)
    faults = {fault.place: f"{fault.message} {fault.hint}" for fault in caught.value.faults}
    assert list(faults) == [
        "sinks.out.topic",
        "sources.absent.topic",
        "sources.away.topic",
        "sources.late.topic",
        "steps.misspelt",
    ]
    assert faults["sources.absent.topic"].startswith("there is no topic 'not-there' Create it")
    assert faults["sources.away.topic"].startswith("no node answered at 127.0.0.1:1")
    assert faults["sources.late.topic"].startswith("start = latest needs a subscription")
    assert faults["sinks.out.topic"].startswith("topic name 'no topic'")
    assert "`vlaue` cannot be resolved" in faults["steps.misspelt"]
    assert capfd.readouterr().err == "", "Java's words are in the error, and not printed beside it"


def test_a_check_changes_nothing_and_a_command_is_a_fault(spark: SparkSession, tmp_path: Path) -> None:
    write(spark, tmp_path, [(1, 10.0)])
    folder = tmp_path / "made"
    for number, command in enumerate(
        (
            f"create table made using parquet location '{folder}' as select 1 as one",
            f"insert overwrite directory '{folder}' using parquet select * from rows",
            f"with a as (select 1 as n) insert overwrite directory '{folder}' using parquet select * from a",
            "set spark.sql.shuffle.partitions = 77",
            "begin select 1; end",
        )
    ):
        pipeline = (
            Pipeline(f"ddl_{number}", checkpoint=str(tmp_path / "checkpoint"))
            .source("rows", parquet=str(tmp_path / "in"), stream=True)
            .step("changed", sql=command)
            .sink("out", from_="changed", console=True)
        )
        with pytest.raises(BadPipeline, match="a step's SQL is a query, and this is a command"):
            pipeline.check()
    assert not folder.exists() and spark.conf.get("spark.sql.shuffle.partitions") != "77"


def test_rows_that_come_early_wait_for_their_turn_and_a_gap_is_given_up(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = "producer string, shard int, n bigint"

    def add(numbers: list[int]) -> None:
        rows = [("p", 0, number) for number in numbers]
        spark.createDataFrame(rows, schema).coalesce(1).write.mode("append").parquet(str(tmp_path / "in"))

    add([2, 1, 0, 4])
    pipeline = (
        Pipeline("order", checkpoint=tmp_path / "ck", trigger={"every": "500ms"})
        .source("rows", parquet=str(tmp_path / "in"), stream=True)
        .step("ordered", from_="rows", reorder={"index": "n", "wait": "1s"})
        .sink("out", from_="ordered", parquet=str(tmp_path / "out"))
    )
    run = pipeline.start(spark)
    try:
        run.wait(timeout=300, idle=3.0)
    finally:
        run.stop()
    rows = spark.read.parquet(str(tmp_path / "out")).select("n", "out_of_order").collect()
    assert sorted((row.n, row.out_of_order) for row in rows) == [(0, False), (1, False), (2, False), (4, False)]


def test_a_sink_that_is_added_later_reads_from_the_start_whatever_the_others_have_read(
    spark: SparkSession, shared_url: str, topic: str, tmp_path: Path
) -> None:
    with headpond.sync.connect(shared_url) as client:
        with client.producer(topic) as producer:
            for number in range(3):
                producer.send(str(number).encode())

        def work(*sinks: str) -> None:
            pipeline = Pipeline(
                "p", checkpoint=tmp_path / "ck", url=shared_url, trigger={"available_now": True}
            )
            pipeline.source("rows", topic=topic, subscription="s")
            for sink in sinks:
                pipeline.sink(sink, from_="rows", parquet=str(tmp_path / sink))
            assert pipeline.start(spark).wait(timeout=300)

        work("one")
        work("one", "two")
        assert [spark.read.parquet(str(tmp_path / sink)).count() for sink in ("one", "two")] == [3, 3]
        known = {each.subscription: each.unsettled for each in client.admin.list_subscriptions(topic)}
        assert known.keys() == {"s.one", "s.two"} and known["s.one"] == 0


def test_a_pipeline_whose_driver_was_killed_at_its_first_offset_starts(
    spark: SparkSession, tmp_path: Path
) -> None:
    left = tmp_path / "ck" / "out" / "offsets" / ".0.6f1d2d7a-8d1b-4f0c.tmp"
    left.parent.mkdir(parents=True)
    left.write_text("v1")
    write(spark, tmp_path, [(1, 1.0)])
    pipeline = (
        Pipeline("p", checkpoint=tmp_path / "ck", trigger={"available_now": True})
        .source("rows", parquet=str(tmp_path / "in"), stream=True)
        .step("once", from_="rows", dedup={"by": "id", "within": "10m"})
        .sink("out", from_="once", parquet=str(tmp_path / "out"))
    )
    assert pipeline.start(spark).wait(timeout=300) and not left.exists()
    assert spark.read.parquet(str(tmp_path / "out")).count() == 1


def test_rows_without_an_id_are_no_repeats_of_each_other(spark: SparkSession, tmp_path: Path) -> None:
    rows = [(None, 1.0), (None, 2.0), (5, 3.0), (5, 4.0)]
    spark.createDataFrame(rows, "id bigint, amount double").write.parquet(str(tmp_path / "in"))
    pipeline = (
        Pipeline("p", checkpoint=tmp_path / "ck", trigger={"available_now": True})
        .source("rows", parquet=str(tmp_path / "in"), stream=True)
        .step("once", from_="rows", dedup={"by": "id", "within": "10m"})
        .sink("out", from_="once", parquet=str(tmp_path / "out"))
    )
    assert pipeline.start(spark).wait(timeout=300)
    found = spark.read.parquet(str(tmp_path / "out"))
    assert found.columns == ["id", "amount"]
    assert sorted(row.id or 0 for row in found.collect()) == [0, 0, 5]


def test_the_row_of_a_gap_can_be_a_dead_letter(spark: SparkSession) -> None:
    rows = [(b"good", None), (None, {"gap.reason": "retention", "gap.end": "9"})]
    frame = spark.createDataFrame(rows, "value binary, headers map<string, string>")
    good, dead = dead_letter("checked", frame, DeadLetter(keep="value is not null", topic="dead"))
    assert [bytes(row.value) for row in good.collect()] == [b"good"]
    ((value, headers),) = dead.select("value", "headers").collect()
    assert bytes(value) == b"" and headers["gap.reason"] == "retention" and "headpond-reason" in headers


def test_a_folder_that_is_ahead_of_the_checkpoint_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    write(spark, tmp_path, [(1, 1.0)])

    def pipeline(sink: str) -> Pipeline:
        started = Pipeline("p", checkpoint=tmp_path / "ck", trigger={"available_now": True})
        started.source("rows", parquet=str(tmp_path / "in"), stream=True)
        return started.sink(sink, from_="rows", parquet=str(tmp_path / "out"))

    offsets = tmp_path / "ck" / "out" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / ".0.2f6c.tmp").touch()  # of a driver that was killed before its first batch
    assert pipeline("out").start(spark).wait(timeout=300)
    write(spark, tmp_path, [(2, 2.0)])
    for refused in (pipeline("renamed").check, pipeline("renamed").start):
        with pytest.raises(BadPipeline, match=r"sinks\.renamed\.parquet: .* has batches up to 0") as caught:
            refused(spark)
        assert "checkpoint" in caught.value.hint
    assert pipeline("out").start(spark).wait(timeout=300)
    assert sorted(row.id for row in spark.read.parquet(str(tmp_path / "out")).collect()) == [1, 2]


def test_a_query_that_fails_stops_the_others_and_says_why(spark: SparkSession, tmp_path: Path) -> None:
    write(spark, tmp_path, [(1, 1.0)])
    pipeline = (
        Pipeline("fails", checkpoint=tmp_path / "ck")
        .source("rows", parquet=str(tmp_path / "in"), stream=True)
        .step("bad", sql="select if(id = 1, raise_error('no such customer'), id) as id from rows")
        .sink("good", from_="rows", parquet=str(tmp_path / "good"))
        .sink("bad", from_="bad", parquet=str(tmp_path / "bad"))
    )
    run = pipeline.start(spark)
    with pytest.raises(PipelineFailed, match=r"fails\.bad: .*no such customer"):
        run.wait(timeout=300)
    assert not run.active


class SlowQuery:
    """The part of a query that stopping needs: it waits for a node longer than Spark waits for it."""

    def __init__(self, failed: str | None = None, *, ends: bool = True) -> None:
        self.isActive = failed is None
        self.status = {"isTriggerActive": True}
        self._failed, self._ends = failed, ends

    def exception(self) -> Exception | None:
        return None if self._failed is None else RuntimeError(self._failed)

    def stop(self) -> None:
        if not self._ends:
            raise TimeoutError("stopTimeout")
        self.isActive = False


def test_a_query_that_does_not_end_neither_keeps_others_running_nor_hides_why_one_failed() -> None:
    pipeline = Pipeline("p").source("a", topic="a").sink("b", from_="a", topic="b")
    slow, other = SlowQuery(ends=False), SlowQuery()
    queries: Any = {"failed": SlowQuery("no such customer"), "slow": slow, "other": other}
    with pytest.raises(PipelineFailed, match=r"p\.failed: no such customer"):
        PipelineRun(pipeline.plan, queries).check()
    assert slow.isActive and not other.isActive
    with pytest.raises(PipelineFailed, match=r"p\.slow did not end in time"):
        PipelineRun(pipeline.plan, queries).stop(within_s=0)


def test_offline_checks_a_file_without_spark(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text(FILE.format(topic="t"))
    done = CliRunner().invoke(app, ["spark", "check", str(file), "--offline"])
    assert done.exit_code == 0 and "steps: once, doubled, checked, split" in done.stdout
    done = CliRunner().invoke(app, ["spark", "check", str(file), "--offline", "--json"])
    check("spark check", done.stdout.encode())
    file.write_text(FILE.format(topic="t").replace('from = "once"', 'from = "onec"'))
    done = CliRunner().invoke(app, ["spark", "check", str(file), "--offline", "--json"])
    assert done.exit_code == 1
    assert "line 14: steps.doubled.from" in json.loads(done.stderr)["message"]
