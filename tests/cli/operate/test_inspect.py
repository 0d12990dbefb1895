"""``headpond inspect`` shows the exact contents and damage of a file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import headpond.sync
from headpond.storage.frame_file import Found, scan
from headpond.storage.os_disk import OsDisk
from headpond.wire.frame import FrameType
from headpond.wire.record import decode_record_header
from tests.cli.conftest import Cli, Node
from tests.fire import packed_topic

LINES = b"".join(b"line %d\n" % number for number in range(10))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a node that got ten messages one by one, and was stopped."""
    node = Node(tmp_path_factory.mktemp("inspect")).start()
    with headpond.sync.connect(node.url) as client, client.producer("t") as producer:
        for line in LINES.splitlines():
            producer.send(line)
    assert node.stop() == 0
    return node.data


@pytest.fixture
def log(data: Path, tmp_path: Path) -> Path:
    """A copy of the log file of that node's topic."""
    (path,) = data.rglob("0" * 20 + ".log")
    return Path(shutil.copy(path, tmp_path))


def frames(path: Path) -> list[Found]:
    file = OsDisk(path.parent).open(path.name)
    try:
        return [item for item in scan(file) if isinstance(item, Found)]
    finally:
        file.close()


def records(path: Path) -> list[Found]:
    return [each for each in frames(path) if each.frame.type == FrameType.SEGMENT]


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


def inspect(cli: Cli, path: Path, *more: object) -> tuple[int, Any]:
    done = cli("inspect", path, "--json", *more)
    return done.code, json.loads(done.out)


def test_a_whole_file_is_shown_whole(cli: Cli, log: Path) -> None:
    code, found = inspect(cli, log)
    assert code == 0
    assert found["title"]["topic"] == "default/default/default/t"
    assert (found["marks"]["first"], found["synced"]["end"]) == (0, 10)
    assert (found["torn"], found["damage"]) == ([], [])
    segments = [each for each in found["records"] if each["kind"] == "SEGMENT"]
    assert [each["first_entry"] for each in segments] == list(range(10))
    assert [each["offset"] for each in segments] == [each.offset for each in records(log)]


def test_a_packed_file_shows_its_records_and_how_many_segments_each_has(cli: Cli, tmp_path: Path) -> None:
    with Node(tmp_path / "node", config=packed_topic.CONFIG) as node:
        files = packed_topic.fill_packed(node, "t")
    code, found = inspect(cli, files[0])
    assert (code, found["damage"]) == (0, [])
    segments = [each for each in found["records"] if each["kind"] == "SEGMENT"]
    assert segments[0]["detail"] == f"packed: {segments[0]['count']} segments of 1 blocks"
    assert sum(each["count"] for each in segments) == int(files[1].name.partition(".")[0])
    first = records(files[0])[0]
    flip(files[0], first.end - 10)  # in the last value
    code, found = inspect(cli, files[0])
    (damage,) = found["damage"]
    assert (code, damage["entries"]) == (1, [0, segments[0]["count"]])
    last = segments[0]["count"] - 1
    assert f"holding entries 0–{last}, of which {last} can be read" in cli("inspect", files[0]).out.decode()


def test_the_text_shows_the_same_as_json(cli: Cli, log: Path) -> None:
    done = cli("inspect", log, "--records", 3)
    assert done.code == 0
    text = done.out.decode()
    assert "topic default/default/default/t" in text
    assert "more; --records" in text
    assert "every checksum is correct" in text


@pytest.mark.parametrize("entry", [0, 4, 8])
def test_damage_is_named_by_offset_and_entry(cli: Cli, log: Path, entry: int) -> None:
    record = records(log)[entry]
    flip(log, record.offset + record.size // 2)
    code, found = inspect(cli, log)
    assert code == 1
    assert found["damage"] == [{"offset": record.offset, "end": record.end, "entries": [entry, entry + 1]}]
    text = cli("inspect", log).out.decode()
    assert f"DAMAGED: bytes {record.offset:,}–{record.end - 1:,}, holding entries {entry}–{entry}" in text


def test_every_damaged_place_is_named(cli: Cli, log: Path) -> None:
    for entry in (2, 3, 7):
        flip(log, _middle(log, entry))
    _, found = inspect(cli, log)
    lost = {entry for bad in found["damage"] for entry in range(*bad["entries"])}
    assert lost == {2, 3, 7}


def _middle(path: Path, entry: int) -> int:
    """The middle of the record of ``entry``, which still stands whole."""
    for each in records(path):
        if decode_record_header(each.frame.body).first_entry == entry:
            return each.offset + each.size // 2
    raise AssertionError(f"entry {entry} is gone")


def test_a_write_that_was_cut_short_is_a_torn_tail_and_no_damage(cli: Cli, log: Path) -> None:
    end = frames(log)[-1].end
    first = records(log)[0]
    torn = log.read_bytes()[first.offset : first.end - 10]
    log.write_bytes(log.read_bytes()[:end] + torn)
    code, found = inspect(cli, log)
    assert code == 0
    assert found["damage"] == []
    assert [each["offset"] for each in found["torn"]] == [end]


@pytest.mark.parametrize("how", ["garbage", "zeros", "cut"])
def test_after_a_clean_stop_the_end_of_a_file_is_checked_against_the_seal(
    cli: Cli, data: Path, tmp_path: Path, how: str
) -> None:
    folder = shutil.copytree(data, tmp_path / "data")
    (path,) = folder.rglob("0" * 20 + ".log")
    whole, last = path.read_bytes(), records(path)[-1]
    lost = len(whole) - last.offset - 20
    tail = {"garbage": b"\xa5" * lost, "zeros": bytes(lost), "cut": b""}[how]
    path.write_bytes(whole[:-lost] + tail)
    code, found = inspect(cli, path)
    assert (code, found["torn"], found["sealed"]) == (1, [], {"bytes": len(whole), "end": 10})
    assert {entry for bad in found["damage"] for entry in range(*bad["entries"])} == {9}
    assert max(bad["end"] for bad in found["damage"]) == len(whole)
    code, found = inspect(cli, folder / "SEAL", "--records", 100)
    assert code == 0
    assert any(str(path.relative_to(folder)) in str(each["detail"]) for each in found["records"])


def test_a_file_of_a_running_node_can_be_read(cli: Cli, node: Node) -> None:
    assert cli("produce", "t", url=node.url, stdin=LINES).code == 0
    (path,) = node.data.rglob("0" * 20 + ".log")
    code, found = inspect(cli, path)
    assert (code, found["damage"], found["synced"]["end"]) == (0, [], 10)


def test_journals_can_be_read(cli: Cli, data: Path) -> None:
    journals = sorted(data.rglob("*.journal"))
    assert journals
    for path in journals:
        code, found = inspect(cli, path)
        assert (code, found["damage"]) == (0, [])
        assert found["frames"]["RECORD"] >= 1


def test_the_list_of_records_is_as_long_as_asked(cli: Cli, log: Path) -> None:
    _, found = inspect(cli, log, "--records", 2)
    assert len(found["records"]) == 2
    assert found["records_total"] >= 10


@pytest.mark.parametrize("content", [b"GIF89a" + bytes(range(256)), b"plain text\n" * 1000, bytes(5000)])
def test_a_file_of_another_program_is_an_error(cli: Cli, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    done = cli("inspect", path)
    assert (done.code, done.out) == (1, b"")
    assert "no frame was found" in done.err


def test_a_folder_or_a_missing_file_is_an_error(cli: Cli, tmp_path: Path) -> None:
    assert "is a folder" in cli("inspect", tmp_path).err
    assert "does not exist" in cli("inspect", tmp_path / "nothing").err
