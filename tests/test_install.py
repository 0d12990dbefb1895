"""What each distribution and extra installs is enough for the modules that it promises.

The tests run the wheels that the project builds. Python may load the standard library, the wheel, and the
packages that the wheel's metadata require for the extra; every other package is missing, as in a fresh
environment.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from functools import cache
from importlib.metadata import Distribution, distribution, packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.root import ROOT

OF_HTTP = {"h11", "litestar", "prometheus-client", "uvicorn"}

ONLY = """
import sys
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.path.insert(0, PLACE)
sys.meta_path.insert(0, Missing())
import headpond
assert headpond.__file__.startswith(PLACE), headpond.__file__
"""

IMPORT_ALL = """
from importlib import import_module
for name in MODULES:
    import_module(name)
"""

CLIENT_AT_WORK = """
import asyncio
import headpond, headpond.testing
for name in headpond.__all__:
    getattr(headpond, name)

async def main():
    async with headpond.testing.node() as node, node.connect() as client:
        await client.admin.create_topic("orders")
        async with client.producer("orders", name="till") as producer:
            await producer.send(b"tea")
            await producer.send(b"milk")
        async with client.consumer("orders", subscription="kitchen") as consumer:
            print(*[(await consumer.receive(timeout=5)).value for _ in range(2)])

asyncio.run(main())
with headpond.testing.blocking_node() as node, headpond.sync.connect(node.url) as client:
    client.admin.create_topic("orders")
    with client.producer("orders", name="till") as producer:
        print(producer.send(b"tea").outcome)
"""

COMMAND = """
sys.argv = ["headpond", *ARGUMENTS]
from headpond.cli import main
main()
"""


def build(project: Path, folder: Path) -> Path:
    """The folder of the unpacked wheel."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=project, check=True, capture_output=True)
    (made,) = folder.glob("*.whl")
    with zipfile.ZipFile(made) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT / "packaging" / "client", tmp_path_factory.mktemp("client"))


def requirements(wheel: Path, extra: str) -> list[Requirement]:
    (metadata,) = wheel.glob("*.dist-info")
    required = Distribution.at(metadata).requires or []
    return needed(required, extra)


def needed(required: Iterable[str], extra: str = "") -> list[Requirement]:
    parsed = [Requirement(each) for each in required]
    return [each for each in parsed if each.marker is None or each.marker.evaluate({"extra": extra})]


@cache
def with_its_own(name: str) -> frozenset[str]:
    """A distribution and those that it requires."""
    found = {name}
    for each in needed(distribution(name).requires or []):
        found |= with_its_own(each.name)
    return frozenset(found)


def missing(wheel: Path, extra: str) -> set[str]:
    """The modules that are installed here, and that the extra does not install."""
    wanted, extras = set[str](), [extra]
    for name in extras:
        for each in requirements(wheel, name):
            if each.name == "headpond":
                extras += each.extras
            else:
                wanted |= with_its_own(each.name)
    there = {each.lower().replace("_", "-") for each in wanted}
    tops = packages_distributions().items()
    found = {top for top, names in tops if not there & {each.lower().replace("_", "-") for each in names}}
    return found - {"headpond", "pyspark_headpond"}


def python(wheel: Path, extra: str, program: str, **given: Any) -> subprocess.CompletedProcess[str]:
    names = {"MISSING": missing(wheel, extra), "PLACE": str(wheel), **given}
    text = "".join(f"{name} = {value!r}\n" for name, value in names.items()) + ONLY + program
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, cwd=wheel)


def sources(wheel: Path, *left_out: str) -> list[str]:
    """All modules of the wheel but some packages."""
    paths = [path.relative_to(wheel).with_suffix("") for path in sorted((wheel / "headpond").rglob("*.py"))]
    names = [".".join(path.parts).removesuffix(".__init__") for path in paths]
    without = ("headpond.__main__", "headpond.testing.plugin", *left_out)
    return [name for name in names if not any(name == each or name.startswith(f"{each}.") for each in without)]


def test_the_client_requires_the_same_without_the_packages_of_http(wheel: Path, client: Path) -> None:
    base = [each for each in requirements(wheel, "") if each.name not in OF_HTTP]
    assert requirements(client, "") == base
    assert {each.name for each in requirements(wheel, "")} > OF_HTTP
    assert missing(client, "") > {each.replace("-", "_") for each in OF_HTTP}


def test_both_have_the_same_modules(wheel: Path, client: Path) -> None:
    assert sources(client) == sources(wheel)


@pytest.mark.parametrize(
    ("extra", "left_out"),
    [
        ("", "spark cluster.jetstream otel"),
        ("cluster", "spark otel"),
        ("spark", "cluster.jetstream otel"),
        ("otel", "spark cluster.jetstream"),
    ],
)
def test_an_extra_is_enough_for_its_modules(wheel: Path, extra: str, left_out: str) -> None:
    import_all(wheel, extra, left_out)


def test_the_client_is_enough_for_all_but_http(client: Path) -> None:
    import_all(client, "", "spark node.http cluster.jetstream otel")


def import_all(wheel: Path, extra: str, left_out: str) -> None:
    names = sources(wheel, *(f"headpond.{each}" for each in left_out.split()))
    done = python(wheel, extra, IMPORT_ALL, MODULES=names)
    assert done.returncode == 0, done.stderr


def test_the_client_sends_and_reads(client: Path) -> None:
    done = python(client, "", CLIENT_AT_WORK)
    assert (done.stdout, done.returncode) == ("b'tea' b'milk'\nstored\n", 0), done.stderr


def test_a_node_with_http_says_what_it_lacks_before_it_makes_its_folder(client: Path, tmp_path: Path) -> None:
    options = ["--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--json"]
    done = python(client, "", COMMAND, ARGUMENTS=["node", *options])
    assert done.returncode == 1
    error = json.loads(done.stderr.splitlines()[-1])
    assert (error["code"], error["hint"]) == (
        "http-missing",
        "Install headpond in place of headpond-client, or start the node without --http.",
    )
    assert not (tmp_path / "data").exists()
