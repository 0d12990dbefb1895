"""``headpond backup`` of a real node under load, and ``headpond restore``."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import headpond.sync
from tests.cli.conftest import HEADPOND, Cli, Node, clean_environment
from tests.cli.contract import check
from tests.fire.real_node import wait_until

SMALL_FILES = "[log]\nrotate_bytes = 65536\npreallocate_bytes = 16384\ncommit_journal_bytes = 262144\n"


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[Node]:
    """A node whose logs and commit journal are replaced often."""
    with Node(tmp_path / "node", config=SMALL_FILES) as running:
        yield running


@contextmanager
def load(node: Node, stored: set[bytes]) -> Iterator[None]:
    """Sends to many shards, so that logs share rounds; ``stored`` gets what was acknowledged."""
    ended = threading.Event()

    def send() -> None:
        with headpond.sync.connect(node.url) as client, client.producer("orders") as producer:
            number = 0
            while not ended.is_set():
                values = [b"%d " % each + b"x" * 200 for each in range(number, number + 64)]
                promises = [producer.post(value, key=value[:8]) for value in values]
                for promise in promises:
                    promise.result(60)
                stored.update(values)
                number += 64

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def messages(node: Node) -> set[bytes]:
    found: list[bytes] = []
    with headpond.sync.connect(node.url) as client:
        for batch in client.admin.browse("orders"):
            found += [message.value for message in batch.messages()]
    assert len(found) == len(set(found))
    return set(found)


def test_a_restored_node_has_what_was_acknowledged_before_the_backup(
    cli: Cli, busy: Node, tmp_path: Path
) -> None:
    stored: set[bytes] = set()
    with headpond.sync.connect(busy.url) as client:
        client.admin.create_topic("orders", shards=16)
        client.admin.create_subscription("orders", "billing")
    backups = tmp_path / "backups"
    with load(busy, stored):
        wait_until(lambda: len(stored) > 2000)
        before = [set(stored)]
        assert cli("backup", backups, url=busy.url).code == 0
        wait_until(lambda: len(stored) > 2 * len(before[0]))
        before.append(set(stored))
        assert cli("backup", backups, url=busy.url).code == 0
    assert not (busy.data / "backup").exists()
    for name, expected in zip(sorted(each.name for each in backups.iterdir()), before, strict=True):
        folder = tmp_path / name
        assert cli("restore", backups / name, "--data", folder / "data").code == 0
        with Node(folder) as restored:
            assert expected <= messages(restored)
            done = cli("sub", "show", "orders", "billing", url=restored.url)
            assert (done.code, "WARNING" in restored.errors) == (0, False)
            with headpond.sync.connect(restored.url) as client, client.producer("orders") as producer:
                assert producer.send(b"after").stored


def test_an_unchanged_file_is_linked_to_the_backup_before(cli: Cli, busy: Node, tmp_path: Path) -> None:
    cli("produce", "orders", "hello", url=busy.url)
    first, second = (
        check("backup", cli("backup", tmp_path / "b", "--json", url=busy.url).out) for _ in range(2)
    )
    assert (first["bytes"], second["files"]) == (first["bytes_copied"], first["files"])
    assert second["bytes_copied"] < first["bytes_copied"]
    restored = check("restore", cli("restore", tmp_path / "b", "--data", tmp_path / "new", "--json").out)
    assert (restored["backup"], restored["bytes"]) == (second["backup"], second["bytes"])
    log = next(Path(first["backup"]).glob("topics/*/*/*.log"))
    assert (Path(second["backup"]) / log.relative_to(first["backup"])).samefile(log)


def begins(client: headpond.sync.Client) -> bool:
    """Whether a backup could begin: the end of the one before takes a moment."""
    try:
        client.admin.begin_backup()
    except headpond.HeadpondError:
        return False
    return True


def test_a_connection_that_ends_ends_its_backup(busy: Node) -> None:
    with headpond.sync.connect(busy.url) as client:
        held = Path(client.admin.begin_backup().folder)
        assert (held / "FILES").exists()
        with headpond.sync.connect(busy.url) as other, pytest.raises(headpond.HeadpondError, match="under way"):
            other.admin.begin_backup()
    wait_until(lambda: not held.exists())
    with headpond.sync.connect(busy.url) as client:
        wait_until(lambda: begins(client))
        client.admin.end_backup()
        client.admin.begin_backup()


def test_a_killed_node_forgets_its_backup(busy: Node) -> None:
    with headpond.sync.connect(busy.url) as client:
        client.admin.begin_backup()
        busy.kill()
    busy.restart()
    assert not (busy.data / "backup").exists()


def test_a_terminal_shows_how_much_is_copied(busy: Node, tmp_path: Path) -> None:
    restored = ("restore", str(tmp_path / "b"), "--data", str(tmp_path / "new"))
    for words in (("backup", str(tmp_path / "b"), "--url", busy.url), restored):
        ours, theirs = pty.openpty()
        environment = clean_environment() | {"TERM": "xterm"}
        done = subprocess.run(
            [*HEADPOND, *words], stdout=subprocess.PIPE, stderr=theirs, env=environment, text=True
        )
        os.close(theirs)
        shown = os.read(ours, 65536).decode()
        os.close(ours)
        total = re.search(r"files, ([^;\n]+)", done.stdout)
        assert total is not None, done.stdout
        assert f"0 B of {total[1]}" in shown and f"{total[1]} of {total[1]}" in shown


def test_restore_refuses_a_folder_in_use_and_a_backup_with_a_missing_file(
    cli: Cli, busy: Node, tmp_path: Path
) -> None:
    cli("backup", tmp_path / "b", url=busy.url)
    done = cli("restore", tmp_path / "b", "--data", busy.data)
    assert (done.code, "not an empty folder" in done.err) == (1, True)
    file = next((tmp_path / "b").glob("*/catalog/*"))
    file.write_bytes(file.read_bytes()[:-1])
    done = cli("restore", tmp_path / "b", "--data", tmp_path / "new")
    assert (done.code, "another length" in done.err) == (1, True)
    assert not (tmp_path / "new").exists()
    done = cli("restore", tmp_path, "--data", tmp_path / "new")
    assert (done.code, "no backup" in done.err) == (1, True)


def test_a_folder_within_the_data_folder_is_refused(cli: Cli, busy: Node, tmp_path: Path) -> None:
    (tmp_path / "linked").symlink_to(busy.data)
    for place in (busy.data, busy.data / "backups", tmp_path / "linked" / "backups"):
        done = cli("backup", place, "--json", url=busy.url)
        assert done.code == 1 and "in the data folder" in json.loads(done.err)["message"]
    assert not (busy.data / "backups").exists()
    wait_until(lambda: not (busy.data / "backup").exists())
    assert cli("backup", tmp_path / "backups", url=busy.url).code == 0


@pytest.mark.parametrize("path", ["../outside", "{}/outside", "topics/../../outside"])
def test_a_list_that_names_a_file_outside_is_refused(cli: Cli, tmp_path: Path, path: str) -> None:
    path = path.format(tmp_path)
    backup = tmp_path / "backups" / "one"
    backup.mkdir(parents=True)
    (tmp_path / "backups" / "outside").write_text("x")
    (backup / "FILES").write_text(json.dumps({"path": path, "bytes": 1, "inode": 1, "mtime_ns": 1}) + "\n")
    done = cli("restore", backup, "--data", tmp_path / "data", "--json")
    assert (done.code, json.loads(done.err)["code"]) == (1, "bad-data")
    assert "outside of the folder" in json.loads(done.err)["message"]
    assert not (tmp_path / "outside").exists()
