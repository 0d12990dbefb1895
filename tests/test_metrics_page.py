"""docs/metrics.md, the dashboard and the alert rules name metrics that a node exposes."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from headpond.node.http.metrics import TIMINGS
from tests import metrics_page
from tests.root import ROOT

DEPLOY = ROOT / "deploy"
BOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "dashboards" / "headpond.json").read_text())


def queries() -> list[str]:
    """Of the dashboard, with its variables, and of the alert rules."""
    targets = [target["expr"] for panel in BOARD["panels"] for target in panel.get("targets", [])]
    variables = [each["query"]["query"] for each in BOARD["templating"]["list"] if each["type"] == "query"]
    return [*targets, *variables, *(alert.expression for alert in metrics_page.alerts())]


def test_the_page_says_what_a_node_exposes_and_what_the_rules_are() -> None:
    assert metrics_page.PAGE.read_text() == metrics_page.page(), "write it: python -m tests.metrics_page"


def test_every_query_names_metrics_that_exist() -> None:
    known = metrics_page.sample_names(metrics_page.node_page())
    known |= metrics_page.sample_names(metrics_page.member_page())
    asked = queries()
    assert len(asked) > 70
    for query in asked:
        names = set(re.findall(r"\b(?:headpond|process)_\w+", re.sub(r'"[^"]*"', '""', query)))
        assert names <= known, query
        assert names or re.search(r"\b(up|ALERTS)\{", query), query


def test_every_event_in_a_query_is_counted() -> None:
    page = metrics_page.node_page()
    known = set(re.findall(r'headpond_node_events_total\{event="(\w+)"\} 0.0', page))
    for query in queries():
        for pattern in re.findall(r'event=~?"([^"]+)"', query):
            for part in pattern.split("|"):
                assert any(re.fullmatch(part, name) for name in known), part


def test_metrics_have_conventional_names() -> None:
    for page in (metrics_page.node_page(), metrics_page.member_page()):
        for name, kind, text in metrics_page.shown(page):
            assert name.startswith(("headpond_", "process_")) and text
            assert name.endswith("_total") == (kind == "counter"), name
            assert kind != "histogram" or name.endswith("_seconds")
    histograms = {
        each.name for each in metrics_page.shown(metrics_page.node_page()) if each.kind == "histogram"
    }
    assert histograms == {f"headpond_{name}_seconds" for name in TIMINGS}


def test_counters_begin_with_0() -> None:
    lines = metrics_page.node_page().splitlines()
    counters = [
        line for line in lines if re.match(r"headpond_(node_\w+|http_\w+|\w+_seconds)_(total|count)", line)
    ]
    ours = [line for line in counters if not line.startswith(("headpond_node_cpu", "headpond_node_events"))]
    assert len(ours) > 10 and all(line.endswith(" 0.0") for line in ours)


def test_the_panels_of_the_dashboard_do_not_overlap_and_have_numbers_of_their_own() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        mine = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not mine & cells and max(mine)[0] < 24, panel["title"]
        cells |= mine
    numbers = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize("alert", list(metrics_page.alerts()), ids=lambda alert: alert.name)
def test_an_alert_is_well_formed(alert: metrics_page.Alert) -> None:
    assert re.fullmatch(r"Headpond[A-Za-z]+", alert.name)
    assert re.fullmatch(r"at once|\d+[smh]", alert.wait) and alert.todo.endswith(".")
    assert alert.expression.count("(") == alert.expression.count(")")


def test_grafana_and_prometheus_find_their_files() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    assert config["rule_files"] == ["alerts.yml"]
    (job,) = config["scrape_configs"]
    (target,) = job["static_configs"][0]["targets"]
    name, _, port = target.partition(":")
    assert any(each.endswith(f":{port}") for each in services[name]["ports"])
    assert name in json.loads(services[name]["environment"]["HEADPOND_HTTP_NAMES"])
    provisioning = DEPLOY / "grafana" / "provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    chosen = next(each for each in BOARD["templating"]["list"] if each["type"] == "datasource")
    assert chosen["current"]["value"] == source["uid"]
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "headpond.yaml").read_text())["providers"]
    mounted = dict(volume.split(":")[:2] for volume in services["grafana"]["volumes"])
    assert mounted["./grafana/dashboards"] == provider["options"]["path"]
    for name in ("prometheus", "grafana"):
        assert services[name]["profiles"] == ["monitoring"]
        assert all(port.startswith("127.0.0.1:") for port in services[name]["ports"])
        paths = [volume.split(":")[0] for volume in services[name]["volumes"]]
        assert all((DEPLOY / path).is_dir() for path in paths if path.startswith("./"))
