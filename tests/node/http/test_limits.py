"""What a client cannot do to the door: be slow, be many, or send too much."""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import trustme

from headpond.broker.settings import Settings
from headpond.model.errors import BadConfig, Insecure
from headpond.node.process import check_secure
from tests.fire.real_node import NodeDidNotStart, wait_until
from tests.node.http.nodes import HttpNode

TIGHT = """
[http_limits]
header_s = 0.5
body_s = 0.5
idle_s = 2.0
unread_s = 0.5
connections = 20
requests = 5
consumers = 10
body_bytes = 1000000
held_bytes = 700000
wait_s = 20
"""


@pytest.fixture(scope="module")
def tight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpNode]:
    with HttpNode(tmp_path_factory.mktemp("tight") / "node", more=TIGHT) as running:
        yield running


def connect(node: HttpNode) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", node.port))
    made.settimeout(30)
    return made


def ends(connection: socket.socket) -> bytes:
    """What comes until the other side closes."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while data := connection.recv(65536):
            found += data
    return found


def drip(connection: socket.socket, data: bytes) -> None:
    """A byte at a time, until the other side has had enough."""
    with contextlib.suppress(OSError):
        for at in range(len(data)):
            connection.sendall(data[at : at + 1])
            time.sleep(0.05)


@pytest.mark.parametrize(
    ("first", "rest"),
    [
        (b"", b""),
        (b"", b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: " + b"x" * 500),
        (
            b"POST /v1/topics/t/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 500\r\n\r\n",
            b"x" * 500,
        ),
        (b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"GET /livez HTTP/1.1\r\nX-Slow: " + b"x" * 500),
    ],
    ids=["silent", "headers", "body", "second request"],
)
def test_a_client_that_is_slow_is_cut(tight: HttpNode, first: bytes, rest: bytes) -> None:
    with connect(tight) as slow:
        slow.sendall(first)
        dripping = threading.Thread(target=drip, args=(slow, rest))
        dripping.start()
        ends(slow)
        dripping.join()
    with tight.client() as http:
        assert http.get("/livez").text == "ok\n"


def test_headers_of_ten_megabytes_are_refused(tight: HttpNode) -> None:
    with connect(tight) as large:
        with contextlib.suppress(OSError):
            large.sendall(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 10_000_000)
        assert b" 200 " not in ends(large)


def test_a_body_that_is_too_large_is_refused_before_it_is_read(tight: HttpNode) -> None:
    head = b"POST /v1/topics/t/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    with connect(tight) as large:
        large.sendall(head + b"Content-Length: 2000000\r\n\r\n")  # and not a byte of it
        answer = ends(large)
    assert b" 413 " in answer and b"body-too-large" in answer
    with connect(tight) as chunked:
        with contextlib.suppress(OSError):
            chunked.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
            for _ in range(20):
                chunked.sendall(b"%x\r\n%s\r\n" % (100_000, b" " * 100_000))
        answer = ends(chunked)
    assert b" 413 " in answer and b"body-too-large" in answer


def test_a_request_without_messages_has_a_short_body(http: httpx.Client) -> None:
    long = {"topic": "t", "settings": {f"setting-{number}": 1 for number in range(60_000)}}
    answer = http.post("/v1/topics", json=long)
    assert (answer.status_code, answer.json()["code"]) == (413, "body-too-large")
    assert "1,048,576" in answer.json()["message"]


def test_clients_that_hang_up_in_the_middle_are_counted_and_not_logged_as_faults(tight: HttpNode) -> None:
    def hung_up(http: httpx.Client) -> float:
        lines = http.get("/metrics").text.splitlines()
        return float(next(line for line in lines if line.startswith("headpond_http_hung_up_total ")).split()[1])

    with tight.client() as http:
        before = hung_up(http)
        http.post("/v1/topics", json={"topic": "t", "exist_ok": True}).raise_for_status()
        for path in ("/v1/topics", "/v1/topics/t/messages", "/v1/topics/t/subscriptions/s/ack"):
            with connect(tight) as leaving:
                head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 500\r\n\r\n{{"
                leaving.sendall(head.encode())
                wait_until(lambda: "headpond_http_requests 2.0" in http.get("/metrics").text)
        with connect(tight) as watching:  # a stream does not ask for the body of its request
            watching.sendall(
                b"GET /v1/topics/t/events HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\n\r\n"
            )
            assert b" 200 " in watching.recv(4096)
        wait_until(lambda: hung_up(http) == before + 3)
    assert "Traceback" not in tight.errors


def test_bytes_that_are_no_http_are_answered_and_the_connection_closed(tight: HttpNode) -> None:
    with connect(tight) as other:
        other.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
        assert b" 400 " in ends(other)


def test_a_request_of_two_lengths_is_refused_and_nothing_after_it_is_taken(tight: HttpNode) -> None:
    with connect(tight) as other:
        head = b"POST /v1/topics HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\n"
        behind = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        other.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + behind)
        answer = ends(other)
    assert b" 400 " in answer and b"bad-request" in answer and answer.count(b"HTTP/1.1") == 1


def test_a_body_that_is_nested_too_deeply_is_a_bad_request(tight: HttpNode) -> None:
    with tight.client() as http:
        answer = http.post("/v1/topics", content=b'{"x":' + b"[" * 100_000)
        assert (answer.status_code, answer.json()["code"]) == (400, "bad-request")


def test_silent_connections_do_not_keep_others_out(tight: HttpNode) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(connect(tight))
        with tight.client() as http:
            assert http.get("/livez").status_code == 200
            assert http.get("/metrics").text.count("headpond_http_connections ") >= 1
            held = [
                line for line in http.get("/metrics").text.splitlines() if line.startswith("headpond_http_c")
            ]
            assert float(held[0].split()[1]) <= 20


def test_requests_beyond_the_limit_are_refused_with_a_time_to_retry(tight: HttpNode) -> None:
    with tight.client() as http:
        http.post("/v1/topics", json={"topic": "waits", "exist_ok": True}).raise_for_status()
        with contextlib.ExitStack() as stack:
            open_ones = []  # kept, since a reader that is let go of closes its stream
            for _ in range(5):
                other = stack.enter_context(tight.client())
                lines = stack.enter_context(other.stream("GET", "/v1/topics/waits/events")).iter_lines()
                assert next(lines) == ": connected"
                open_ones.append(lines)
            answer = http.get("/v1/topics")
            assert (answer.status_code, answer.json()["code"]) == (503, "limit")
            assert answer.headers["retry-after"] == "1"
            assert [http.request(how, "/livez").status_code for how in ("GET", "HEAD")] == [200, 200]
        while http.get("/v1/topics").status_code != 200:
            time.sleep(0.05)


def test_a_stream_that_nobody_reads_is_cut(tight: HttpNode) -> None:
    with tight.client() as http:
        body = {"messages": [{"value": "x" * 90_000} for _ in range(10)]}
        for _ in range(12):
            http.post("/v1/topics/large/messages", json=body).raise_for_status()
        with connect(tight) as lazy:
            lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            lazy.sendall(b"GET /v1/topics/large/events?start=earliest HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            deadline = time.monotonic() + 30
            while "headpond_http_requests 1.0" not in http.get("/metrics").text:
                assert time.monotonic() < deadline
                time.sleep(0.1)


def test_a_wait_that_is_too_long_is_refused(tight: HttpNode) -> None:
    with tight.client() as http:
        answer = http.post("/v1/topics/t/subscriptions/s/fetch", params={"wait": 21})
        assert (answer.status_code, answer.json()["code"]) == (400, "bad-request")


def test_one_token_does_not_use_up_the_room_of_all(tight: HttpNode, topic: str) -> None:
    """``caller_share`` is a half: 2 of 5 requests, 5 of 10 consumers."""
    with contextlib.ExitStack() as stack:
        greedy, other = (stack.enter_context(tight.client(token)) for token in ("greedy", "other"))
        greedy.post("/v1/topics", json={"topic": topic}).raise_for_status()

        def fetch(http: httpx.Client, consumer: int) -> httpx.Response:
            params = {"kind": "shared", "consumer": f"c{consumer}"}
            return http.post(f"/v1/topics/{topic}/subscriptions/s/fetch", params=params)

        assert [fetch(greedy, number).status_code for number in range(6)] == [*[200] * 5, 503]
        assert "consumers are held for this token" in fetch(greedy, 6).json()["message"]
        assert fetch(other, 7).status_code == 200
        open_ones = []
        for _ in range(2):
            stream = greedy.stream("GET", f"/v1/topics/{topic}/events")
            open_ones.append(stack.enter_context(stream).iter_lines())
            assert next(open_ones[-1]) == ": connected"
        refused = greedy.get("/v1/topics")
        assert (refused.status_code, refused.json()["code"]) == (503, "limit")
        assert "requests of this token" in refused.json()["message"]
        assert other.get("/v1/topics").status_code == 200
        open_ones.clear()


def test_messages_sent_ahead_to_a_held_consumer_count_as_held(tight: HttpNode, topic: str) -> None:
    path, raw = f"/v1/topics/{topic}", {"Content-Type": "application/octet-stream"}
    with tight.client() as http:
        texts = [random.Random(seed).randbytes(125_000).hex() for seed in range(3)]  # nothing to fold
        for text in texts:
            http.post(f"{path}/messages", content=text.encode(), headers=raw).raise_for_status()
        fetch, one = f"{path}/subscriptions/s/fetch", {"count": 1, "wait": 10}
        (found,) = http.post(fetch, params=one).json()["messages"]
        wait_until(lambda: http.get(f"{path}/subscriptions/s").json()["in_flight"] == 3)  # two are sent ahead
        for url in (fetch, f"{path}/subscriptions/other/fetch"):
            refused = http.post(url, params=one)
            assert (refused.status_code, refused.json()["code"]) == (503, "limit"), url
        for place, text in (("0/0", texts[1]), ("0/1", texts[2])):  # with nothing in hand it gets on
            http.post(f"{path}/subscriptions/s/ack", json={"positions": [place]}).raise_for_status()
            (found,) = http.post(fetch, params=one).json()["messages"]
            assert found["value"] == text
        http.delete(f"{path}/subscriptions/s/consumer").raise_for_status()


def test_http_beyond_loopback_needs_tokens_and_tls(tmp_path: Path) -> None:
    settings = Settings(data=str(tmp_path), http="0.0.0.0:7412")
    with pytest.raises(Insecure, match=r"0\.0\.0\.0:7412"):
        check_secure(settings, guarded=False)
    with pytest.raises(Insecure, match="no TLS"):
        check_secure(settings, guarded=True)
    check_secure(Settings(http="0.0.0.0:7412", insecure=True), guarded=False)
    check_secure(Settings(http="0.0.0.0:7412", tls_cert="a"), guarded=True)
    assert not settings.creates_on_first_use
    with pytest.raises(BadConfig, match="http = 'nonsense'"):
        Settings(http="nonsense").check_places()
    with pytest.raises(BadConfig, match="is not HOST:PORT"):
        Settings(listen=f"127.0.0.1:{'9' * 5000}").check_places()


def test_a_node_whose_http_port_is_taken_does_not_start_and_says_so(tight: HttpNode, tmp_path: Path) -> None:
    other = HttpNode(tmp_path / "other")
    (tmp_path / "other" / "node.toml").write_text(f'http = "127.0.0.1:{tight.port}"\n')
    with pytest.raises(NodeDidNotStart, match="for HTTP"):
        other.start()


def test_http_uses_tls_with_the_certificate_of_the_node(tmp_path: Path) -> None:
    authority = trustme.CA()
    made = authority.issue_cert("127.0.0.1")
    pem = tmp_path / "node.pem"
    pem.write_bytes(made.private_key_and_cert_chain_pem.bytes())
    with HttpNode(tmp_path / "node", more=f'tls_cert = "{pem}"\n') as node:
        assert node.http.startswith("https://")
        context = ssl.create_default_context()
        authority.configure_trust(context)
        with httpx.Client(base_url=node.http, verify=context, timeout=30) as http:
            assert http.get("/readyz").text == "ok\n"
            assert http.post("/v1/topics/t/messages", json={"value": "a"}).json()["stored"] == 1


def test_a_node_whose_disk_is_full_is_not_ready_and_says_why(tmp_path: Path) -> None:
    """No disk has as much room as is asked for here."""
    with HttpNode(tmp_path / "node", more="[limits]\nfree_bytes_min = 1152921504606846976\n") as node:
        with node.client() as http:
            answer = http.get("/readyz")
            assert (answer.status_code, answer.json()["code"]) == (503, "disk-full")
            assert http.get("/livez").text == "ok\n"
            assert "headpond_node_disk_full 1.0" in http.get("/metrics").text
            assert http.get("/v1/node").json()["disk_full"] is True
        assert node.errors.count("disk-full: sends are refused") == 1


def test_a_node_that_stops_ends_waits_and_streams(tmp_path: Path) -> None:
    with HttpNode(tmp_path / "node") as node:
        answers: list[int] = []

        def wait() -> None:
            with node.client() as waiting:
                path = "/v1/topics/t/subscriptions/s/fetch"
                answers.append(waiting.post(path, params={"wait": 50}).status_code)

        with node.client() as http:
            http.post("/v1/topics", json={"topic": "t"}).raise_for_status()
            waiter = threading.Thread(target=wait)
            waiter.start()
            while not http.get("/v1/topics/t/subscriptions").json():
                time.sleep(0.05)
            with http.stream("GET", "/v1/topics/t/events") as stream:
                lines = stream.iter_lines()
                assert next(lines) == ": connected"
                node.stop()
                assert [line for line in lines if line] == []
        waiter.join(20)
        assert answers == [503]
