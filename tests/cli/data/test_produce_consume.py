"""Lines in, lines out, and which messages are settled."""

from __future__ import annotations

import json
import signal
import time

import pyarrow as pa

import headpond.sync
from tests.cli.conftest import Cli, Node, Spawn


def fill(node: Node, topic: str, lines: bytes) -> None:
    """Sends each line as a message."""
    with headpond.sync.connect(node.url) as client, client.producer(topic) as producer:
        producer.send_batch(pa.table({"value": pa.array(lines.splitlines(), pa.binary())}))


def summary(text: str) -> str:
    """The counts of the last line, without the rate."""
    return text.splitlines()[-1].partition(" (")[0]


def test_lines_come_back_as_they_were(cli: Cli, service: Node, topic: str) -> None:
    lines = b"one\n\n two \r\n\xff\xfe\n" + "grün\n".encode() + b"last without newline"
    done = cli("produce", topic, url=service.url, stdin=lines)
    assert done.code == 0
    assert summary(done.err) == "sent 6, stored 6, duplicate 0, spilled 0, rejected 0"
    assert done.out == b""
    read = cli("consume", topic, "--subscription", "s", "--count", 6, url=service.url)
    assert (read.code, read.out) == (0, lines + b"\n")


def test_many_lines_keep_their_order(cli: Cli, service: Node, topic: str) -> None:
    lines = b"".join(b"%d\n" % number for number in range(200_000))
    assert json.loads(cli("produce", topic, "--json", url=service.url, stdin=lines).out)["stored"] == 200_000
    assert cli("consume", topic, "--subscription", "s", "--count", 200_000, url=service.url).out == lines


def test_no_input_is_no_message(cli: Cli, service: Node, topic: str) -> None:
    done = cli("produce", topic, url=service.url)
    assert done.code == 0
    assert summary(done.err).startswith("sent 0,")


def test_a_key_stands_before_the_first_separator(cli: Cli, service: Node, topic: str) -> None:
    cli("produce", topic, "--key-separator", ":", url=service.url, stdin=b"k:v:w\nno key\n:\n")
    done = cli("consume", topic, "--subscription", "s", "--count", 3, "--json", url=service.url)
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert [(row["key"], row["value"]) for row in rows] == [("k", "v:w"), (None, "no key"), ("", "")]


def test_a_line_too_long_is_rejected_and_the_others_are_stored(cli: Cli, service: Node, topic: str) -> None:
    done = cli("produce", topic, url=service.url, stdin=b"a\n" + b"x" * (8 << 20) + b"\nb\n")
    assert done.code == 1
    assert summary(done.err) == "sent 3, stored 2, duplicate 0, spilled 0, rejected 1"
    assert "line 2 " in done.err
    assert cli("consume", topic, "--subscription", "s", "--count", 2, url=service.url).out == b"a\nb\n"


def test_the_longest_line_that_is_allowed_is_stored(cli: Cli, service: Node, topic: str) -> None:
    from headpond.cli.stdio import LINE_BYTES_MAX

    line = b"x" * LINE_BYTES_MAX + b"\n"
    assert cli("produce", topic, url=service.url, stdin=line).code == 0
    assert cli("consume", topic, "--subscription", "s", "--count", 1, url=service.url).out == line


def test_a_line_is_sent_while_the_input_stays_open(cli: Cli, spawn: Spawn, service: Node, topic: str) -> None:
    producer = spawn("produce", topic, "--url", service.url)
    assert producer.stdin is not None
    producer.stdin.write(b"now\n")
    producer.stdin.flush()
    assert cli("consume", topic, "--subscription", "s", "--count", 1, url=service.url).out == b"now\n"
    _, err = producer.communicate()
    assert summary(err.decode()).startswith("sent 1, stored 1")


def test_ctrl_c_ends_a_produce_that_waits_for_input(spawn: Spawn, service: Node, topic: str) -> None:
    producer = spawn("produce", topic, "--url", service.url)
    assert producer.stdin is not None
    producer.stdin.write(b"one\n")
    producer.stdin.flush()
    wait_for_entries(service, topic, 1)
    producer.send_signal(signal.SIGINT)
    _, err = producer.communicate()
    assert producer.returncode == 130
    assert b"Traceback" not in err
    found = err.decode()  # stored it is; whether the answer was heard before the end is a matter of chance
    assert summary(found).startswith("sent 1, stored 1") or "1 not confirmed" in found


def wait_for_entries(node: Node, topic: str, count: int) -> None:
    with headpond.sync.connect(node.url) as client:
        while True:
            try:
                shards = client.admin.show_topic(topic).shard_list
                if sum(shard.entry_next for shard in shards) >= count:
                    return
            except headpond.errors.TopicNotFound:
                pass
            time.sleep(0.02)


def test_a_json_row_has_every_field_of_a_message(cli: Cli, service: Node, topic: str) -> None:
    cli("produce", topic, "--key-separator", "=", url=service.url, stdin=b"\xff=\xfe\nk=v\n")
    done = cli("consume", topic, "--subscription", "s", "--count", 2, "--json", url=service.url)
    binary, text = (json.loads(line) for line in done.out.splitlines())
    fields = "topic shard entry id key value headers sent_at stored_at node identity attempt"
    assert list(text) == fields.split()
    assert (binary["key"], binary["value"]) == ({"base64": "/w=="}, {"base64": "/g=="})
    assert (text["key"], text["value"], text["id"], text["headers"]) == ("k", "v", None, {})
    assert text["topic"] == f"default/default/default/{topic}"
    assert (text["shard"], text["entry"], text["attempt"]) == (0, 1, 1)
    assert text["identity"].endswith("/0/0/1")
    assert text["sent_at"].endswith("Z")
    assert text["sent_at"] <= text["stored_at"]
    with headpond.sync.connect(service.url) as client:
        assert text["node"] == binary["node"] == client.admin.show_node()["node"]


def test_only_printed_messages_are_settled(cli: Cli, service: Node, topic: str) -> None:
    fill(service, topic, b"1\n2\n3\n4\n5\n")
    consume = ("consume", topic, "--subscription", "s", "--idle", 1)
    assert cli(*consume, "--count", 2, url=service.url).out == b"1\n2\n"
    assert cli(*consume, "--count", 0, url=service.url).out == b""
    assert cli(*consume, url=service.url).out == b"3\n4\n5\n"
    assert cli(*consume, url=service.url).out == b""


def test_settlements_outlive_a_kill_of_the_node(cli: Cli, node: Node) -> None:
    fill(node, "t", b"1\n2\n3\n")
    assert cli("consume", "t", "--subscription", "s", "--count", 2, url=node.url).out == b"1\n2\n"
    node.kill()
    node.restart()
    assert cli("consume", "t", "--subscription", "s", "--idle", 1, url=node.url).out == b"3\n"


def test_latest_skips_older_messages(cli: Cli, service: Node, topic: str) -> None:
    fill(service, topic, b"old\n")
    consume = ("consume", topic, "--subscription", "s", "--start", "latest", "--idle", 0.5)
    assert cli(*consume, url=service.url).out == b""
    fill(service, topic, b"new\n")
    assert cli(*consume, url=service.url).out == b"new\n"


def test_an_entry_can_be_the_start(cli: Cli, service: Node, topic: str) -> None:
    fill(service, topic, b"0\n1\n2\n")
    assert cli("consume", topic, "-s", "s", "--start", 1, "--count", 2, url=service.url).out == b"1\n2\n"


def test_a_reader_that_closes_the_pipe_ends_the_command_quietly(
    cli: Cli, spawn: Spawn, service: Node, topic: str
) -> None:
    fill(service, topic, b"".join(b"%d\n" % number for number in range(100_000)))
    consumer = spawn("consume", topic, "--subscription", "s", "--url", service.url)
    assert consumer.stdout is not None
    assert consumer.stderr is not None
    assert consumer.stdout.readline() == b"0\n"
    consumer.stdout.close()
    assert consumer.wait(30) == 0
    assert consumer.stderr.read() == b""


def test_ctrl_c_ends_a_consume_and_settles_the_printed_messages(
    cli: Cli, spawn: Spawn, service: Node, topic: str
) -> None:
    fill(service, topic, b"1\n2\n")
    consumer = spawn("consume", topic, "--subscription", "s", "--url", service.url)
    assert consumer.stdout is not None
    assert [consumer.stdout.readline() for _ in range(2)] == [b"1\n", b"2\n"]
    wait_until_settled(service, topic, 2)
    consumer.send_signal(signal.SIGINT)
    out, err = consumer.communicate()
    assert (consumer.returncode, out, err) == (130, b"", b"")
    assert cli("consume", topic, "--subscription", "s", "--idle", 0.5, url=service.url).out == b""


def wait_until_settled(node: Node, topic: str, count: int) -> None:
    with headpond.sync.connect(node.url) as client:
        while sum(each.settled for each in client.admin.list_subscriptions(topic)) < count:
            time.sleep(0.02)


def test_an_interrupted_print_leaves_the_rest_unsettled(
    cli: Cli, spawn: Spawn, service: Node, topic: str
) -> None:
    lines = b"".join(b"%06d\n" % number for number in range(300_000))
    fill(service, topic, lines)
    consumer = spawn("consume", topic, "--subscription", "s", "--url", service.url)
    assert consumer.stdout is not None
    assert consumer.stdout.readline() == b"000000\n"  # it prints, and then the reader closes
    consumer.send_signal(signal.SIGINT)
    assert consumer.wait(30) == 130
    printed = 1 + consumer.stdout.read().count(b"\n")
    rest = cli("consume", topic, "--subscription", "s", "--idle", 1, url=service.url).out.splitlines()
    assert int(rest[0]) <= printed
    assert rest[-1] == b"299999"


def test_another_kind_than_the_subscriptions_is_an_error(cli: Cli, service: Node, topic: str) -> None:
    cli("topic", "create", topic, url=service.url)
    cli("sub", "create", topic, "s", url=service.url)
    done = cli("consume", topic, "-s", "s", "--kind", "failover", "--json", "--idle", 1, url=service.url)
    assert done.code == 1
    assert json.loads(done.err)["code"] == "subscription-mismatch"


def test_a_subscription_continues_where_the_last_consume_ended(cli: Cli, service: Node, topic: str) -> None:
    """As the README's tour has it: first attempts, in order, also of what had been sent ahead."""
    fill(service, topic, b"".join(b"%d\n" % number for number in range(1, 50_001)))
    seen: list[tuple[str, int]] = []
    for count in (3, 1, 2, 1):
        ran = cli("consume", topic, "-s", "tour", "--count", count, "--json", url=service.url)
        rows = [json.loads(line) for line in ran.out.splitlines()]
        seen += [(row["value"], row["attempt"]) for row in rows]
    assert seen == [(str(number), 1) for number in range(1, 8)]
