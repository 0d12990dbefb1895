"""All faults of a pipeline are reported before anything runs, with lines and hints."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from headpond.errors import BadPipeline
from headpond.spark.pipeline import Pipeline

GOOD = """\
name = "orders"

[sources.orders]
topic = "orders"
subscription = "pipeline"

[steps.clean]
from = "orders"
dedup = { within = "10m" }

[steps.checked]
from = "clean"
dead_letter = { keep = "value is not null", topic = "orders.bad" }

[steps.split]
from = "checked"
route = { eu = "key = 'eu'" }

[sinks.eu]
from = "split_eu"
topic = "eu"

[sinks.rest]
from = "split_rest"
parquet = "rest"
by_date = "stored_at"
"""


def faults_of(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "pipeline.toml"
    file.write_text(dedent(text))
    with pytest.raises(BadPipeline) as caught:
        _ = Pipeline.load(file).plan
    return [f"{fault.line}: {fault.place}: {fault.message} | {fault.hint}" for fault in caught.value.faults]


def test_a_good_file_is_a_plan(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(GOOD)
    plan = Pipeline.load(tmp_path / "p.toml").plan
    assert plan.name == "orders" and list(plan.steps) == ["clean", "checked", "split"]
    assert plan.steps["clean"].dedup is not None and plan.steps["clean"].dedup.by == "identity"


def test_python_can_build_the_same_plan() -> None:
    pipeline = Pipeline("orders").source("orders", topic="orders").sink("out", from_="orders", topic="out")
    assert pipeline.plan.sinks["out"].from_ == "orders"
    with pytest.raises(BadPipeline, match="twice"):
        pipeline.sink("out", from_="orders", topic="out")


def test_a_pipeline_without_a_name_takes_that_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "2-night run.toml").write_text(GOOD.replace('name = "orders"', ""))
    assert Pipeline.load(tmp_path / "2-night run.toml").plan.name == "night_run"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            ('topic = "orders"', 'topik = "orders"'),
            "4: sources.orders.topik: there is no key topik here | Did you",
        ),
        (
            ('within = "10m"', 'wihin = "10m"'),
            "9: steps.clean.dedup.wihin: there is no key wihin here | Did you",
        ),
        (('within = "10m"', ""), "9: steps.clean.dedup: the key within is missing |"),
        (('within = "10m"', "within = 10"), "9: steps.clean.dedup.within: expected str, got int |"),
        (
            ('"10m"', '"10 minutos"'),
            "9: steps.clean.dedup.within: '10 minutos' is not a duration | Write it as 30s",
        ),
        (('"10m"', '"0s"'), "9: steps.clean.dedup.within: it must be longer than 0 |"),
        (
            ('from = "orders"', 'from = "order"'),
            "8: steps.clean.from: nothing above is called order | Did you mean",
        ),
        (('from = "orders"', 'from = "split_eu"'), "8: steps.clean.from: nothing above is called split_eu |"),
        (('topic = "eu"', 'parquet = "a"\ntopic = "eu"'), "19: sinks.eu: it must have one of topic, topics,"),
        (
            ('topic = "eu"', ""),
            "19: sinks.eu: it must have one of topic, topics, parquet, console; it has none",
        ),
        (('topic = "eu"', 'topic = "eu"\nby_date = "x"'), "22: sinks.eu.by_date: by_date is about Parquet |"),
        (
            ('topic = "eu"', 'topic = "eu"\nmode = "update"'),
            "22: sinks.eu.mode: only the console can take update",
        ),
        (
            ('"split_rest"', '"checked"'),
            "17: steps.split.route: no step or sink takes the rows of split_rest | Take",
        ),
        (("[steps.clean]", "[steps.orders]"), "7: steps.orders: the name orders is taken by sources.orders |"),
        (("[steps.clean]", "[steps.Orders]"), "7: steps.Orders: the name Orders is taken by sources.orders |"),
        (
            ("[sinks.eu]", "[sinks.checked_dead]"),
            "19: sinks.checked_dead: the name checked_dead is taken by the",
        ),
        (
            ("[sinks.rest]", '[sinks.r]\nfrom = "split_rest"\nparquet = "./rest"\n[sinks.rest]'),
            "28: sinks.rest.parquet: it counts its batches where sinks.r does",
        ),
        (
            (
                'topic = "eu"',
                'topic = "eu"\nsink_id = "a"\n[sinks.b]\nfrom = "clean"\ntopic = "eu"\nsink_id = "a"',
            ),
            "26: sinks.b.sink_id: it counts its batches where sinks.eu does",
        ),
        (
            (
                '[sinks.rest]\nfrom = "split_rest"',
                '[steps.x]\nsql = "table split_rest_0"\n[sinks.rest]\nfrom = "x"',
            ),
            "17: steps.split.route: no step or sink takes the rows of split_rest |",
        ),
        (
            (
                '[sinks.rest]\nfrom = "split_rest"',
                '[steps.y]\nfrom = "split_rest"\npython = "a:b"\n[sinks.rest]\nfrom = "clean"',
            ),
            "17: steps.split.route: no step or sink takes the rows of split_rest |",
        ),
        (
            ("[sources.orders]", "[source.orders]"),
            "3: source: there is no key source here | Did you mean sources?",
        ),
        (('name = "orders"', 'name = "my orders"'), "1: name: a name is a letter, then letters, digits and _"),
        (
            ("[sources.orders]", '[trigger]\nevery = "1s"\navailable_now = true\n[sources.orders]'),
            "3: trigger: every and available_now exclude each other |",
        ),
    ],
)
def test_a_fault_has_its_line_and_a_hint(tmp_path: Path, change: tuple[str, str], expected: str) -> None:
    assert change[0] in GOOD
    faults = faults_of(tmp_path, GOOD.replace(*change, 1))
    assert any(fault.startswith(expected) for fault in faults), faults


def test_all_faults_are_reported_at_once(tmp_path: Path) -> None:
    text = GOOD.replace('topic = "orders"', "topic = 1").replace('parquet = "rest"', 'parket = "rest"')
    assert [fault.split(":")[0] for fault in faults_of(tmp_path, text)] == ["4", "25"]


def test_a_file_that_is_no_pipeline_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadPipeline, match="cannot read"):
        Pipeline.load(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("a = \n")
    with pytest.raises(BadPipeline, match=r"not TOML.*line 1"):
        Pipeline.load(tmp_path / "bad.toml")
    assert faults_of(tmp_path, "")[0].endswith(
        "the key sources is missing | docs/spark_pipelines.md lists the keys."
    )
    assert "there is no source" in " ".join(faults_of(tmp_path, "[sources]\n[sinks]\n"))


def test_a_route_by_out_of_order_is_a_fault(tmp_path: Path) -> None:
    text = GOOD.replace('dedup = { within = "10m" }', 'reorder = { index = "entry", wait = "5s" }')
    faults = faults_of(tmp_path, text.replace("key = 'eu'", "not out_of_order"))
    assert len(faults) == 1 and faults[0].startswith("17: steps.split.route: a row may be out_of_order in one")


def test_reorder_does_not_work_with_available_now(tmp_path: Path) -> None:
    text = GOOD.replace('dedup = { within = "10m" }', 'reorder = { index = "entry", wait = "5s" }')
    faults = faults_of(tmp_path, "trigger = { available_now = true }\n" + text)
    assert len(faults) == 1 and faults[0].startswith("1: trigger: available_now does not work with reorder")
