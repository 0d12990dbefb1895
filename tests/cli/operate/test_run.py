"""``headpond run``: the handlers of a program, their drain at SIGTERM, and their restart after a change."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest

import headpond.sync
from headpond.cli.operate.run import find_files
from tests.cli.conftest import HEADPOND, Cli, clean_environment

WAIT_S = 60
PROGRAM = """
import headpond

app = headpond.App()


@app.subscriber("{topic}", subscription="s")
def take(value: str) -> None:
    with open("got", "a") as file:
        file.write("{word} " + value + "\\n")
"""


def wait_for(path: Path, text: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not path.exists() or text not in path.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_handlers_run_start_again_after_a_change_and_end_with_a_signal(
    shared_url: str, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "work.py").write_text(PROGRAM.format(topic=topic, word="old"))
    names = clean_environment() | {"HEADPOND_URL": shared_url}
    with (
        headpond.sync.connect(shared_url) as client,
        client.producer(topic, value=str) as producer,
        subprocess.Popen([*HEADPOND, "run", "work:app", "--reload"], cwd=tmp_path, env=names) as process,
    ):
        try:
            producer.send("1")
            wait_for(tmp_path / "got", "old 1\n")
            (tmp_path / "work.py").write_text(PROGRAM.format(topic=topic, word="new"))
            producer.send("2")
            wait_for(tmp_path / "got", " 2\n")
            while "new" not in (tmp_path / "got").read_text():
                producer.send("3")
                time.sleep(0.2)
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) == 0
        finally:
            process.kill()
        assert client.admin.show_subscription(topic, "s").in_flight == 0


def test_what_is_no_application_is_refused(cli: Cli) -> None:
    for place in ("no_such_module:app", "os:no_such_name", "os:path"):
        done = cli("run", place)
        assert done.code == 2
        assert place in done.err


@pytest.mark.parametrize("place", ["work.py", "work.py:app", "./work", "below/work.py"])
def test_a_file_in_place_of_its_module_is_refused(cli: Cli, place: str) -> None:
    done = cli("run", place)
    assert done.code == 2
    assert "give its module, as in work:app" in done.err


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("@app.subscriber('orders')", "work cannot be imported: TypeError: App.subscriber() missing"),
        ("@app.subscriber", "topic is of type function"),
        ("import no_such_module", "work cannot be imported: ModuleNotFoundError: No module named"),
        ("def", "work cannot be imported: SyntaxError: "),
    ],
)
def test_a_program_that_cannot_be_imported_is_shown_without_the_frames_of_the_command(
    tmp_path: Path, line: str, error: str
) -> None:
    (tmp_path / "work.py").write_text(f"import headpond\napp = headpond.App()\n{line}\ndef f(a): ...\n")
    names = clean_environment()
    done = subprocess.run([*HEADPOND, "run", "work"], cwd=tmp_path, env=names, capture_output=True, text=True)
    assert done.returncode == 1
    assert 'work.py", line 3' in done.stderr
    assert "typer" not in done.stderr and "importlib" not in done.stderr and "run.py" not in done.stderr
    said, hint = done.stderr.splitlines()[-2:]
    assert said.startswith(f"error: {error}") and hint.startswith("hint: ")


def test_the_watched_files_are_those_of_the_program(tmp_path: Path) -> None:
    for name in ("a.py", "below/b.py", ".hidden/c.py", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert {path.relative_to(tmp_path).as_posix() for path in find_files(tmp_path)} == {"a.py", "below/b.py"}
