"""The files of ``deploy/`` agree with the command line, with the settings and with each other."""

from __future__ import annotations

import re
import runpy
import shlex
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from headpond.broker.settings import Settings, variables
from headpond.cli.app import command
from headpond.model.address import parse_addresses
from tests.root import ROOT

DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "headpond"
TEMPLATES = sorted((CHART / "templates").iterdir())
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
COMPOSE = ("compose.yaml", "cluster.compose.yaml")
OF_CLIENTS = {"HEADPOND_URL"}
"""Variables that the files name, and that are no settings of a node."""
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
DATA = "/var/lib/headpond"


# --- what the files say -------------------------------------------------------------------------------


class Image(NamedTuple):
    environment: dict[str, str]
    command: list[str]
    """Behind ``headpond``."""
    ports: set[int]
    volume: str
    sources: list[str]
    """Files of the tree that it copies."""


def image() -> Image:
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    found = dict(lines)  # the last of each
    copied = [shlex.split(rest) for word, rest in lines if word == "COPY" and "--from" not in rest]
    entry = yaml.safe_load(found["ENTRYPOINT"])
    assert entry == ["tini", "--", "headpond"]
    return Image(
        environment=dict(word.split("=", 1) for word in shlex.split(found["ENV"])),
        command=yaml.safe_load(found["CMD"]),
        ports={int(port) for port in found["EXPOSE"].split()},
        volume=found["VOLUME"],
        sources=[source for words in copied for source in words[:-1]],
    )


def compose(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / name).read_text())
    return found


def compose_nodes(name: str) -> dict[str, dict[str, Any]]:
    services = compose(name)["services"]
    return {key: service for key, service in services.items() if key.startswith("node")}


def unit() -> dict[str, str]:
    lines = (DEPLOY / "headpond.service").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def unit_environment() -> dict[str, str]:
    lines = (DEPLOY / "headpond.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line.startswith("HEADPOND_"))


def commented_environment() -> dict[str, str]:
    """What the file offers beside: TLS, and a cluster."""
    return dict(re.findall(r"^#(HEADPOND_\w+)=(.*)$", (DEPLOY / "headpond.env").read_text(), re.MULTILINE))


def parsed(words: list[str]) -> dict[str, Any]:
    """The options of ``headpond WORDS``, read by the command line itself. It raises if they are wrong."""
    group: Any = command()
    context = group.make_context("headpond", list(words))
    while True:
        name, chosen, rest = group.resolve_command(context, [*context._protected_args, *context.args])
        context = chosen.make_context(name, rest, parent=context)
        if not hasattr(chosen, "resolve_command"):
            return dict(context.params)
        group = chosen


def settings(words: list[str], environment: dict[str, str]) -> Settings:
    """Those of the node that a command line starts."""
    assert words[0] == "node"
    options = parsed(words)
    assert options["config"] is None
    keys = set(Settings.__struct_fields__) & set(options)
    overrides = {key: options[key] or None for key in keys}
    return Settings.load(None, {**overrides, "data": None}, environment)


# --- the command line and the settings ----------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_every_variable_is_one_of_a_setting(path: Path) -> None:
    names = set(re.findall(r"HEADPOND_[A-Z_]+[A-Z]", path.read_text()))
    assert names - variables().keys() - OF_CLIENTS - {"HEADPOND_PORT"} == set()


def test_the_image_runs_a_node_on_its_ports_and_its_volume() -> None:
    found = image()
    started = settings(found.command, found.environment)
    assert started.http_address is not None
    assert found.ports == {started.address[1], started.http_address[1]}
    assert (started.data, found.volume) == (DATA, DATA)
    assert not started.insecure, "it refuses other machines until it has tokens and TLS"


def test_the_image_copies_files_that_exist_and_that_the_build_may_see() -> None:
    seen = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    for source in image().sources:
        assert (ROOT / source).exists()
        assert f"!{source}" in seen


@pytest.mark.parametrize("name", COMPOSE)
def test_the_nodes_of_a_compose_file_run(name: str) -> None:
    for key, service in compose_nodes(name).items():
        found = settings(service["command"], image().environment | service["environment"])
        assert found.http_address is not None
        inside = {int(port.rsplit(":", 1)[1]) for port in service["ports"]}
        assert inside == image().ports == {found.address[1], found.http_address[1]}
        volumes = dict(volume.split(":")[:2] for volume in service["volumes"])
        assert list(volumes.values()) == [found.data] and volumes.keys() <= compose(name)["volumes"].keys()
        assert all(port.startswith("127.0.0.1:") for port in service["ports"]), f"{key} is open"
        build = service["build"]
        assert (DEPLOY / build["context"]).resolve() == ROOT
        assert (ROOT / build["dockerfile"]) == DEPLOY / "Dockerfile"


def test_published_ports_differ() -> None:
    for name in COMPOSE:
        ports = [port for service in compose_nodes(name).values() for port in service["ports"]]
        published = [port.split(":")[1] for port in ports]
        assert len(set(published)) == len(published)


def test_the_members_of_the_compose_file_are_three_and_reach_each_other_and_nats() -> None:
    services = compose("cluster.compose.yaml")["services"]
    nodes = compose_nodes("cluster.compose.yaml")
    assert len(nodes) == 3
    for key, service in nodes.items():
        found = settings(service["command"], image().environment | service["environment"])
        (address,) = parse_addresses(found.advertise)
        assert (found.member, address.host, address.port) == (key, key, found.address[1])
        servers = re.findall(r"([\w-]+):(\d+)", found.cluster.removeprefix("nats://"))
        assert servers == [(name, "4222") for name in services if name.startswith("nats")]
        assert service["depends_on"] == [name for name, _ in servers]


def test_the_unit_runs_a_node_in_its_folder() -> None:
    found = unit()
    executable, *words = shlex.split(found["ExecStart"])
    assert executable == "/usr/local/bin/headpond"
    started = settings(words, unit_environment())
    assert started.on_loopback
    assert started.data == f"/var/lib/{found['StateDirectory']}" == DATA
    other = settings(words, unit_environment() | commented_environment())
    assert other.tls_cert and other.cluster and not other.on_loopback
    assert (other.address[1], other.http_address and other.http_address[1]) == (7411, 7412)
    assert found["Type"] == "exec", "the node does not notify systemd"
    assert found["Restart"] == "always"


def test_the_commands_of_the_operators_page_are_right() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    commands = [found[1] for line in lines if (found := re.search(r"(?:^|-- )headpond (.*)", line))]
    assert len(commands) >= 4
    for each in commands:
        parsed(shlex.split(each))
    named = re.findall(r"deploy/[\w./]*\w", page)
    assert named and [path for path in named if not (ROOT / path).exists()] == []


# --- nats ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", [DEPLOY / "nats.conf", CHART / "templates" / "nats.yaml"], ids=lambda p: p.name
)
def test_a_nats_server_syncs_before_it_acknowledges(path: Path) -> None:
    text = path.read_text()
    assert "sync_interval: always" in text
    assert all(f"listen: 0.0.0.0:{port}" in text for port in (4222, 6222))


def test_the_nats_servers_of_the_compose_file_find_each_other_and_keep_their_store() -> None:
    config = (DEPLOY / "nats.conf").read_text()
    services = compose("cluster.compose.yaml")["services"]
    servers = [name for name in services if name.startswith("nats")]
    assert re.findall(r"nats://([\w-]+):6222", config) == servers
    for name in servers:
        service = services[name]
        assert service["command"] == ["--name", name, "--config", "/etc/nats/nats.conf"]
        assert service["volumes"] == ["./nats.conf:/etc/nats/nats.conf:ro", f"{name}:/data"]
    assert 'store_dir: "/data"' in config


# --- the chart ----------------------------------------------------------------------------------------


def chart_values() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return found


def template_text() -> str:
    return "\n".join(path.read_text() for path in TEMPLATES)


def test_the_versions_are_those_of_the_project() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    tags = {service["image"] for name in COMPOSE for service in compose_nodes(name).values()}
    assert chart["appVersion"] == VERSION
    assert tags == {chart_values()["image"]} == {f"headpond:{VERSION}"}
    servers = {service["image"] for service in compose("cluster.compose.yaml")["services"].values()} - tags
    assert servers == {chart_values()["nats"]["image"]}


def test_the_templates_use_every_value_and_no_other() -> None:
    used = set(re.findall(r"\.Values\.([\w.]+)", template_text()))
    values: set[str] = set()
    for key, value in chart_values().items():
        inner = value if isinstance(value, dict) and key not in ("resources", "settings") else {}
        values |= {f"{key}.{each}" for each in inner} or {key}
    assert used == values


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_the_blocks_of_a_template_end(path: Path) -> None:
    depth = 0
    for word in re.findall(r"{{-?\s*(if|range|with|define|end)\b", path.read_text()):
        depth += -1 if word == "end" else 1
        assert depth >= 0
    assert depth == 0
    assert path.read_text().count("{{") == path.read_text().count("}}")


def test_the_charts_nodes_have_the_ports_and_the_folder_of_the_image() -> None:
    text = (CHART / "templates" / "nodes.yaml").read_text()
    environment = dict(re.findall(r"- name: (HEADPOND_\w+)\n\s+value: (\S+)", text.split("{{- else }}", 1)[1]))
    environment |= dict(re.findall(r"- name: (HEADPOND_DATA)\n\s+value: (\S+)", text))
    for name in ("HEADPOND_LISTEN", "HEADPOND_HTTP", "HEADPOND_DATA"):
        assert environment[name] == image().environment[name]
    assert {int(port) for port in re.findall(r"containerPort: (\d+)", text)} == image().ports
    assert f"mountPath: {DATA}\n" in text
    user = re.search(r"--uid (\d+)", (DEPLOY / "Dockerfile").read_text())
    assert user is not None
    users = set(re.findall(r"(?:runAsUser|runAsGroup|fsGroup): (\d+)", template_text()))
    assert users == {user[1]}


def test_the_proxies_find_the_active_node() -> None:
    text = (CHART / "templates" / "http.yaml").read_text()
    assert "uri /readyz" in text and "expect status 200" in text
    bound = re.findall(r"bind :(\d+)", text)
    assert bound == re.findall(r"containerPort: (\d+)", text)


# --- the health check ---------------------------------------------------------------------------------


@contextmanager
def answering(status: int) -> Iterator[int]:
    """The port of a server that answers /livez."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/livez" else 404)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            """Prints nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def check_health(monkeypatch: pytest.MonkeyPatch, **environment: str) -> None:
    for name in variables():
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    runpy.run_path(str(DEPLOY / "health.py"), run_name="__main__")


def test_the_health_check_asks_livez(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(200) as port:
        check_health(monkeypatch, HEADPOND_LISTEN="0.0.0.0:1", HEADPOND_HTTP=f"0.0.0.0:{port}")
    with answering(503) as port, pytest.raises(OSError, match="503"):
        check_health(monkeypatch, HEADPOND_LISTEN="0.0.0.0:1", HEADPOND_HTTP=f"0.0.0.0:{port}")


def test_without_http_the_health_check_asks_for_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(200) as port:
        check_health(monkeypatch, HEADPOND_LISTEN=f"0.0.0.0:{port}")
    with pytest.raises(OSError, match="refused"):
        check_health(monkeypatch, HEADPOND_LISTEN=f"0.0.0.0:{port}")
