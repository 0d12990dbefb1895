"""``headpond refill list|show|drop`` and ``headpond inspect`` on refill files."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path
from typing import Any

import pytest

from headpond.producer.refill.folder import FileName, slot_name
from headpond.producer.refill.refill import Refill
from headpond.storage.folder_lock import FolderLock
from headpond.storage.os_disk import OsDisk
from tests.cli.conftest import HEADPOND, SECONDS_MAX, Cli, clean_environment
from tests.producer.refills import BLOCK, ROWS, A, B, key, new_refill, segment_frame, write

SLOT = slot_name("orders", "till-1")
CREATED_US = 1_794_718_800_000_000


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state folder with one slot of two files: A lacks two segments of the first, B all of both."""
    folder = tmp_path / "state"
    make(folder, CREATED_US, BLOCK)
    make(folder, CREATED_US + 1, b"\xab" * 16)
    FolderLock.take(folder / "refill" / SLOT).release()
    (folder / "refill" / SLOT / "topic").write_text("something else's")
    return folder


def make(folder: Path, created_us: int, block: bytes) -> Path:
    disk = OsDisk(folder / "refill")
    refill = new_refill(disk, path=f"{SLOT}/{FileName(created_us, block)}", block=block)
    write(refill, 0, 1, 2)
    write(refill, 7, shard=1)
    refill.ack(key(0), A)
    refill.reject(key(1), A, "bad-segment", "no batch")
    refill.close({0: 3, 1: 8})
    return folder / "refill" / refill.path


def path_of(state: Path, created_us: int = CREATED_US, block: bytes = BLOCK) -> Path:
    return state / "refill" / SLOT / str(FileName(created_us, block))


def ask(cli: Cli, *arguments: object) -> Any:
    done = cli("refill", *arguments, "--json")
    assert done.code == 0, done.err
    return json.loads(done.out)


def spoil(path: Path, segment: int = 2) -> None:
    data = bytearray(path.read_bytes())
    data[data.index(segment_frame(segment)) + 25] ^= 1
    path.write_bytes(data)


# --- list ---------------------------------------------------------------------------------------------


def test_every_file_is_listed_oldest_first_with_what_each_destination_has(cli: Cli, state: Path) -> None:
    one, other = ask(cli, "list", "--state", state)
    assert (one["slot"], one["topic"], one["producer"]) == (SLOT, "default/default/default/orders", "till-1")
    assert (one["block"], other["block"]) == (BLOCK.hex(), "ab" * 16)
    assert (one["segments"], one["rows"]) == (4, 4 * ROWS)
    assert one["bytes"] == path_of(state).stat().st_size
    assert one["created_at"] == "2026-11-15T05:00:00.000Z"
    assert one["destinations"] == [
        {"destination": A, "pending": 2, "acked": 1, "refused": 1, "lost": 0},
        {"destination": B, "pending": 4, "acked": 0, "refused": 0, "lost": 0},
    ]
    assert (one["in_use_by"], one["damage"], one["error"], one["continuable"]) == (None, [], None, True)


def test_a_file_that_was_cut_short_is_listed_and_shown_with_what_it_lost(cli: Cli, state: Path) -> None:
    path = path_of(state)
    data = path.read_bytes()
    path.write_bytes(data[: data.index(segment_frame(2)) + 9])
    one, _ = ask(cli, "list", "--state", state)
    assert [(each["shard"], each["segments"]) for each in one["damage"]] == [(0, [2, 3]), (1, [7, 8])]
    assert {each["why"] for each in one["damage"]} == {"the file was cut short"}
    assert [each["lost"] for each in one["destinations"]] == [2, 2]
    assert f"{B} 2 (0 acked, 0 refused, 2 lost)" in cli("refill", "list", "--state", state).out.decode()
    shown = cli("refill", "show", path, "--state", state)
    assert shown.code == 1 and "the file was cut short" in shown.out.decode()
    inspected = cli("inspect", path)
    assert inspected.code == 1 and "segment 2 of shard 0" in inspected.out.decode()


def test_the_state_folder_is_found_by_its_variable(cli: Cli, state: Path) -> None:
    done = cli("refill", "list", "--json", HEADPOND_STATE=str(state))
    assert len(json.loads(done.out)) == 2


def test_a_person_reads_a_row_a_file(cli: Cli, state: Path) -> None:
    done = cli("refill", "list", "--state", state)
    lines = done.out.decode().splitlines()
    assert done.code == 0 and len(lines) == 3
    assert lines[0].startswith("SLOT") and SLOT in lines[1] and BLOCK.hex()[:8] in lines[1]
    assert f"{A} 2 (1 acked, 1 refused)" in lines[1]


def test_the_process_that_uses_a_file_is_named(cli: Cli, state: Path) -> None:
    with FolderLock.take(state / "refill" / SLOT):
        assert {each["in_use_by"] for each in ask(cli, "list", "--state", state)} == {os.getpid()}


def test_nothing_to_list_is_no_error(cli: Cli, tmp_path: Path) -> None:
    assert ask(cli, "list", "--state", tmp_path) == []
    done = cli("refill", "list", "--state", tmp_path)
    assert (done.code, done.out) == (0, b"") and "no refill files" in done.err
    assert list(tmp_path.iterdir()) == [], "looking makes nothing"
    done = cli("refill", "list", HOME=str(tmp_path), XDG_STATE_HOME="")
    assert done.code == 0 and list(tmp_path.iterdir()) == []


def test_a_state_folder_that_is_not_there_is_an_error(cli: Cli, tmp_path: Path) -> None:
    done = cli("refill", "list", "--state", tmp_path / "nowhere")
    assert done.code == 1 and "there is no state folder" in done.err and "hint: " in done.err


def test_damaged_and_unreadable_files_are_listed_as_such(cli: Cli, state: Path) -> None:
    spoil(path_of(state))
    path_of(state, CREATED_US + 1, b"\xab" * 16).write_bytes(b"rubbish" * 50)
    one, other = ask(cli, "list", "--state", state)
    (damage,) = one["damage"]
    assert (damage["shard"], damage["segments"]) == (0, [2, 3])
    assert one["destinations"][0]["lost"] == 1
    assert "no refill file" in other["error"] and other["segments"] is None
    text = cli("refill", "list", "--state", state).out.decode()
    assert "1 places" in text and "unreadable" in text


# --- show ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["path", "name", "block", "whole block"])
def test_one_file_is_shown_however_it_is_named(cli: Cli, state: Path, by: str) -> None:
    path = path_of(state)
    target = {"path": path, "name": path.name, "block": BLOCK.hex()[:8], "whole block": BLOCK.hex()}[by]
    (shown,) = ask(cli, "show", target, "--state", state)
    assert shown["block"] == BLOCK.hex() and shown["closed"] and not shown["typed"]
    assert [(each["shard"], each["segments"]) for each in shown["shard_list"]] == [(0, [[0, 3]]), (1, [[7, 8]])]
    assert shown["segments_next"] == {"0": 3, "1": 8}
    (refusal,) = shown["refusals"]
    assert (refusal["destination"], refusal["segments"], refusal["code"]) == (A, [1, 2], "bad-segment")


def test_a_slot_is_shown_file_by_file(cli: Cli, state: Path) -> None:
    assert len(ask(cli, "show", SLOT, "--state", state)) == 2
    assert len(ask(cli, "show", state / "refill" / SLOT)) == 2
    text = cli("refill", "show", SLOT, "--state", state).out.decode()
    assert text.count("DESTINATION ") == 2 and "no batch" in text and "continuable  yes" in text


def test_showing_a_damaged_file_exits_with_1(cli: Cli, state: Path) -> None:
    spoil(path_of(state))
    done = cli("refill", "show", path_of(state))
    assert done.code == 1
    assert "DAMAGED" in done.out.decode() and "segment 2 of shard 0" in done.out.decode()
    path_of(state).write_bytes(b"rubbish")
    done = cli("refill", "show", path_of(state))
    assert done.code == 1 and "unreadable" in done.out.decode()


def test_a_missing_file_or_slot_is_an_error_with_a_hint(cli: Cli, state: Path) -> None:
    for target in ("nothing", "0123abcd", state / "nothing.refill"):
        done = cli("refill", "show", target, "--state", state)
        assert (done.code, done.out) == (1, b"")
        assert "there is no refill file" in done.err and "refill list" in done.err
    (state / "empty").mkdir()
    done = cli("refill", "show", state / "empty")
    assert done.code == 1 and "no refill files in" in done.err


def test_an_ambiguous_block_is_refused(cli: Cli, state: Path) -> None:
    make(state, CREATED_US + 2, b"\xab" * 15 + b"\xac")
    done = cli("refill", "show", "abab", "--state", state)
    assert done.code == 1 and "2 refill files" in done.err


# --- drop ---------------------------------------------------------------------------------------------


def test_dropping_a_file_says_what_and_deletes_that_alone(cli: Cli, state: Path) -> None:
    size = path_of(state).stat().st_size
    dropped = ask(cli, "drop", path_of(state), "--yes")
    assert dropped == {
        "destination": None,
        "dropped": [
            {"file": str(path_of(state)), "segments": 4, "rows": 4 * ROWS, "bytes": size, "undelivered": 4}
        ],
    }
    left = sorted(each.name for each in (state / "refill" / SLOT).iterdir())
    other = str(FileName(CREATED_US + 1, b"\xab" * 16))
    assert left == [other, f"{other}.note", "lock", "topic"]


def test_dropping_a_slot_deletes_its_files(cli: Cli, state: Path) -> None:
    done = cli("refill", "drop", SLOT, "--yes", "--state", state)
    assert done.code == 0 and done.out.decode().count("dropped ") == 2
    assert ask(cli, "list", "--state", state) == []


def test_without_a_terminal_drop_needs_yes(cli: Cli, state: Path) -> None:
    done = cli("refill", "drop", SLOT, "--state", state)
    assert done.code == 2 and "--yes" in done.err
    assert len(ask(cli, "list", "--state", state)) == 2


@pytest.mark.parametrize(("answer", "code", "left"), [(b"n\n", 1, 2), (b"y\n", 0, 1)])
def test_at_a_terminal_it_asks(cli: Cli, state: Path, answer: bytes, code: int, left: int) -> None:
    ours, theirs = pty.openpty()
    try:
        os.write(ours, answer)
        done = subprocess.run(
            [*HEADPOND, "refill", "drop", str(path_of(state))],
            stdin=theirs,
            capture_output=True,
            env=clean_environment(),
            timeout=SECONDS_MAX,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == code
    assert b"4 segments, 12 rows" in done.stderr, "it says what it would delete"
    assert len(ask(cli, "list", "--state", state)) == left


def test_dropping_one_destinations_claim_leaves_the_others(cli: Cli, state: Path) -> None:
    found = ask(cli, "drop", SLOT, "--destination", A, "--yes", "--state", state)
    assert [(each["segments"], each["rows"]) for each in found["dropped"]] == [(2, 2 * ROWS)] * 2
    for one in ask(cli, "list", "--state", state):
        mine, others = one["destinations"]
        assert (mine["pending"], mine["acked"], mine["refused"]) == (0, 1, 3)
        assert (others["pending"], others["refused"]) == (4, 0)
        assert one["continuable"], "a block that could be continued still can"
    refill = Refill.open(OsDisk(state), str(path_of(state).relative_to(state)))
    assert {each.code for each in refill.claims.refusals} == {"bad-segment", "dropped"}
    refill.release()


def test_a_destination_that_the_file_is_not_for_is_an_error(cli: Cli, state: Path) -> None:
    done = cli("refill", "drop", SLOT, "--destination", "headpond://c:1", "--yes", "--state", state)
    assert done.code == 1 and A in done.err and B in done.err


def test_a_slot_in_use_is_not_touched_and_the_process_is_named(cli: Cli, state: Path) -> None:
    with FolderLock.take(state / "refill" / SLOT):
        for target in (SLOT, path_of(state)):
            done = cli("refill", "drop", target, "--yes", "--state", state, "--json")
            assert done.code == 1
            error = json.loads(done.err)
            assert error["code"] == "refill-in-use" and str(os.getpid()) in error["message"]
    assert len(ask(cli, "list", "--state", state)) == 2


def test_an_unreadable_file_can_be_dropped(cli: Cli, state: Path) -> None:
    path_of(state).write_bytes(b"rubbish")
    done = cli("refill", "drop", path_of(state), "--yes")
    assert done.code == 0 and "cannot be read" in done.out.decode()
    assert not path_of(state).exists()


def test_a_copy_elsewhere_is_dropped_without_a_lock(cli: Cli, state: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.refill"
    copy.write_bytes(path_of(state).read_bytes())
    with FolderLock.take(state / "refill" / SLOT):
        assert cli("refill", "drop", copy, "--yes").code == 0
    assert not copy.exists() and not (tmp_path / "lock").exists()


# --- inspect ------------------------------------------------------------------------------------------


def inspect(cli: Cli, path: Path, *more: object) -> tuple[int, Any]:
    done = cli("inspect", path, "--json", *more)
    return done.code, json.loads(done.out)


def test_inspecting_a_refill_lists_its_frames(cli: Cli, state: Path, tmp_path: Path) -> None:
    copy = tmp_path / "by-its-frames"
    copy.write_bytes(path_of(state).read_bytes())
    code, found = inspect(cli, copy)
    assert code == 0
    assert (found["title"]["topic"], found["title"]["block"]) == ("default/default/default/orders", BLOCK.hex())
    assert found["destinations"] == [A, B] and found["closed"] == {"0": 3, "1": 8}
    assert found["frames"]["SEGMENT"] == 4 and found["frames"]["REJECT"] == 1
    assert found["refill"]["segments"] == 4 and found["refill"]["rows"] == 4 * ROWS
    assert (found["torn"], found["damage"]) == ([], [])
    segments = [each for each in found["records"] if each["kind"] == "SEGMENT"]
    assert [(each["shard"], each["segment"], each["rows"]) for each in segments] == [
        (0, 0, ROWS),
        (0, 1, ROWS),
        (0, 2, ROWS),
        (1, 7, ROWS),
    ]
    details = [each["detail"] for each in found["records"] if each["kind"] in ("REJECT", "STATUS")]
    assert f"{A} shard 0 segments 1–1: bad-segment" in details[0]
    assert "CLOSED, next 0: 3, 1: 8" in details[-1]


def test_a_person_reads_a_refill_too(cli: Cli, state: Path) -> None:
    done = cli("inspect", path_of(state), "--records", 3)
    text = done.out.decode()
    assert done.code == 0 and A in text and "every checksum is correct" in text and "more; --records" in text


def test_a_damaged_refill_exits_with_1_and_names_the_lost_segments(cli: Cli, state: Path) -> None:
    spoil(path_of(state))
    code, found = inspect(cli, path_of(state))
    assert code == 1
    (damage,) = found["damage"]
    assert (damage["shard"], damage["segments"]) == (0, [2, 3])
    assert "DAMAGED" in cli("inspect", path_of(state)).out.decode()


def test_a_torn_tail_of_a_refill_is_no_damage(cli: Cli, state: Path) -> None:
    content = path_of(state).read_bytes()
    path_of(state).write_bytes(content + segment_frame(3)[:-3])
    code, found = inspect(cli, path_of(state))
    assert (code, found["damage"]) == (0, [])
    assert [each["offset"] for each in found["torn"]] == [len(content)]


def test_a_refill_without_its_beginning_shows_the_rest(cli: Cli, state: Path) -> None:
    content = bytearray(path_of(state).read_bytes())
    start = content.index(segment_frame(0))
    content[:start] = b"\x99" * start
    path_of(state).write_bytes(content)
    code, found = inspect(cli, path_of(state))
    assert code == 1 and "beginning" in found["fault"] and found["frames"]["SEGMENT"] == 4
