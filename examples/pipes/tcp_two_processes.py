"""Two processes with a pipe between them, and one of them killed in the middle.

A sender process sends numbers into ``resend_many(confirm=settled)``; a receiver process writes each one down
and then confirms it. The receiver is killed (SIGKILL) when it has a third, and started again on the same port.
The sender continues by itself, and messages that the receiver had not confirmed come again.

    python examples/pipes/tcp_two_processes.py [MESSAGES]

It ends by itself, with exit code 0 only if every message was received: R = 1.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from headpond.pipes.drivers import tcp

ROUTE = "resend_many(confirm=settled)"
HOST = "127.0.0.1"


async def send(port: int, messages: int) -> None:
    async with tcp.connect(ROUTE, HOST, port) as sender:
        for number in range(messages):
            await sender.send(b"%d" % number)
            if number == messages // 2:  # so that the receiver is killed in the middle on any machine
                await asyncio.to_thread(sys.stdin.readline)
        await sender.flush()
        stats = sender.stats
    print(
        f"sender: {stats.accepted} sent, {stats.retransmissions} sent again, {stats.reconnects} reconnects, "
        f"{stats.receiver_restarts} restart of the receiver seen"
    )


async def receive(port: int, journal: Path) -> None:
    async with tcp.listen(ROUTE, HOST, port) as receiver:
        print(receiver.address[1], flush=True)
        with journal.open("a") as file:
            async for item in receiver.items():
                print(item.payload.decode(), file=file, flush=True)
                receiver.confirm(item)


def start(*arguments: object, reads: bool = False) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, *map(str, arguments)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE if reads else None, text=True
    )


def start_receiver(port: int, journal: Path) -> tuple[subprocess.Popen[str], int]:
    """Returns when it listens, with the port."""
    receiver = start("receive", port, journal, reads=True)
    assert receiver.stdout is not None
    return receiver, int(receiver.stdout.readline())


def end(process: subprocess.Popen[str]) -> None:
    """With SIGKILL, in whatever it is doing."""
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


def received(journal: Path) -> list[int]:
    """The lines that were written whole: of one cut short by the kill nothing was confirmed."""
    text = journal.read_text() if journal.exists() else ""
    return [int(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def demonstrate(messages: int, folder: Path) -> bool:
    journal = folder / "received.txt"
    receiver, port = start_receiver(0, journal)
    sender = start("send", port, messages)
    try:
        while len(received(journal)) < messages // 3 and sender.poll() is None:
            time.sleep(0.01)
        end(receiver)
        print(f"receiver killed after {len(received(journal))} messages, and started again")
        # A line cut short by the kill is ended, so that the next one begins on a new line.
        if journal.read_bytes()[-1:] != b"\n":
            journal.write_text("".join(f"{number}\n" for number in received(journal)))
        receiver, _ = start_receiver(port, journal)
        sender.communicate("go on\n", timeout=60)
        sent_all = sender.returncode == 0
    finally:
        end(sender)
        end(receiver)
    got = received(journal)
    unique = len(set(got))
    reliability, uniqueness = unique / messages, unique / max(len(got), 1)
    print(f"sent {messages}, received {len(got)}, unique {unique}: R = {reliability:g}, UR = {uniqueness:.4f}")
    return sent_all and set(got) == set(range(messages))


def main() -> int:
    match sys.argv[1:]:
        case ["send", port, messages]:
            asyncio.run(send(int(port), int(messages)))
        case ["receive", port, journal]:
            asyncio.run(receive(int(port), Path(journal)))
        case given:
            with tempfile.TemporaryDirectory() as folder:
                return 0 if demonstrate(int(given[0]) if given else 20_000, Path(folder)) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
