"""Tokens: created, stored as hashes, listed, revoked; the first one closes the node for good."""

from __future__ import annotations

import base64

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headpond.broker.access import tokens
from headpond.broker.settings import Limits
from headpond.model.errors import BadRequest, BadScope, BadTopicName, LimitReached, NotAllowed, TokenNotFound
from headpond.model.grant import ALL, Grant
from headpond.model.names import Place, Scope
from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.connection import ConnectionFault
from headpond.wire.control.access import (
    AdminRecord,
    CreateToken,
    ListAdminLog,
    ListTokens,
    RevokeToken,
    ShowAccess,
    ShowToken,
    TokenCreated,
    TokenInfo,
)
from headpond.wire.control.catalog import CreateTopic, DeleteTopic
from headpond.wire.control.codec import Request, Response, read_result
from headpond.wire.control.consuming import CreateSubscription, PauseSubscription
from headpond.wire.control.greeting import Hello, Welcome
from headpond.wire.frame import FrameType, encode
from tests.broker.access.guarded import TOPIC, GuardedNode
from tests.fire.core_shell import SMALL_FILES, CoreClient, CoreShell

FIRST = CreateToken("admin", ["admin"], ["*"])

PARTS = st.sampled_from(["a", "ab", "abc", "b", "a*", "ab*", "*"])
SCOPES = st.lists(PARTS, min_size=1, max_size=4).map("/".join).map(Scope.parse)
NAMES = st.tuples(*[st.sampled_from(["a", "ab", "abc", "abd", "b", "ba"])] * 4).map(Place)


def end(client: CoreClient) -> str:
    return "".join(fault.error.code for fault in client.take(ConnectionFault))


# --- scopes -----------------------------------------------------------------------------------------


@given(SCOPES, SCOPES, NAMES)
def test_a_scope_that_covers_another_holds_all_that_the_other_holds(
    one: Scope, other: Scope, name: Place
) -> None:
    if one.covers(other) and other.holds(name):
        assert one.holds(name)


@pytest.mark.parametrize(
    ("scope", "place", "within"),
    [
        ("*", "acme", True),
        ("acme", "acme", True),
        ("acme", "acme/shop/till/orders", True),
        ("acme", "acmes/shop/till/orders", False),
        ("acme/shop", "acme", False),
        ("acme/shop/*/orders-*", "acme/shop/till/orders-1", True),
        ("acme/shop/*/orders-*", "acme/shop/till/orders", False),
        ("acme/shop/till/orders", "acme/shop/till/orders.dead", False),
        ("*/shop", "acme/shop/till/orders", True),
    ],
)
def test_a_scope_reaches_down_from_where_it_stands(scope: str, place: str, within: bool) -> None:
    assert Scope.parse(scope).holds(Place.of(place)) is within


@pytest.mark.parametrize("text", ["", "a//b", "a/b/c/d/e", "a b", "*a", "a*b", "../x", "a/**"])
def test_a_scope_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(BadScope):
        Scope.parse(text)


# --- the first token --------------------------------------------------------------------------------


def test_a_node_that_never_had_a_token_is_open() -> None:
    shell = CoreShell(MemoryDisk(), seed=1)
    for text in (None, "hpd_whatever"):
        client = shell.connect(text)
        assert client.take(Welcome)
        assert client.request(ShowAccess())["guarded"] is False
        client.request(CreateTopic("orders" if text is None else "others"))


def test_the_first_token_is_an_admins_and_closes_the_node_to_those_without() -> None:
    shell = CoreShell(MemoryDisk(), seed=1)
    maker, other = shell.connect(), shell.connect()
    for ask in (CreateToken("t", ["admin"], ["acme"]), CreateToken("t", ["admin"], ["*"], lasts_s=9.0)):
        with pytest.raises(BadRequest, match="first token"):
            maker.request(ask)
    made = read_result(maker.request(FIRST), TokenCreated)
    assert end(maker) == "token-needed" and end(other) == "token-needed"
    assert maker.closed and other.closed
    assert shell.connect(made.secret).request(ShowAccess())["rights"] == ["admin"]


def test_revoking_the_last_token_does_not_open_the_node() -> None:
    node = GuardedNode()
    node.admin.request(RevokeToken("admin"))
    assert end(node.admin) == "token-revoked"
    assert end(node.shell.connect()) == "token-needed"
    again = CoreShell(node.disk, seed=2)
    assert end(again.connect()) == "token-needed"
    assert end(again.connect(node.admin_text)) == "token-revoked"


# --- keeping ----------------------------------------------------------------------------------------


def test_tokens_are_there_after_a_restart_and_their_secrets_nowhere() -> None:
    node = GuardedNode()
    text = node.token(["consume"], ["acme"], subscription="billing", lasts_s=60.0)
    secret = text.split("_", 2)[2]
    image = b"".join(
        node.disk.open(f"{folder}/{name}").read_at(0, 1 << 20)
        for folder in ("tokens", "admin_log", "catalog")
        for name in node.disk.list(folder)
    )
    assert text.split("_")[1].encode() in image, "the id is kept"
    assert secret.encode() not in image
    assert base64.urlsafe_b64decode(secret + "=") not in image
    again = CoreShell(node.disk, seed=2, now_us=node.shell.now_us)
    info = again.connect(text).request(ShowAccess())
    assert (info["rights"], info["scopes"], info["subscription"]) == (["consume"], ["acme"], "billing")
    assert (
        end(CoreShell(node.disk, seed=3, now_us=node.shell.now_us + 61_000_000).connect(text))
        == "token-expired"
    )


def test_many_changes_are_compacted_and_none_is_forgotten() -> None:
    node = GuardedNode()
    texts = [node.token(["consume"], ["acme"]) for _ in range(40)]
    ids = [text.split("_")[1] for text in texts]
    for token in ids[::2]:
        node.admin.request(RevokeToken(token))
    again = CoreShell(node.disk, seed=2)
    ends = [end(again.connect(text)) for text in texts]
    assert ends == ["token-revoked", ""] * 20


def test_a_token_that_could_not_be_written_does_not_exist() -> None:
    node = GuardedNode()
    before = len(node.admin.request(ListTokens()))
    node.admin.send(Request(99, CreateToken("t", ["consume"], ["acme"])))
    node.shell.pending.clear()  # the machine stops here
    again = CoreShell(node.disk, seed=2)
    assert len(again.connect(node.admin_text).request(ListTokens())) == before


# --- making and revoking ----------------------------------------------------------------------------


def test_an_admin_of_a_tenant_hands_out_what_lies_within_it() -> None:
    node = GuardedNode()
    admin = node.client(["admin"], ["acme"])
    text = node.made(admin, CreateToken("till", ["produce"], ["acme/shop"])).secret
    for scopes in (["beta"], ["*"], ["acme/shop", "beta"], ["acme*"]):
        with pytest.raises(NotAllowed):
            admin.request(CreateToken("t", ["produce"], scopes))
    seen = read_result(admin.request(ListTokens()), list[TokenInfo])
    assert {scope for info in seen for scope in info.scopes} == {"acme", "acme/shop"}
    with pytest.raises(TokenNotFound):
        admin.request(RevokeToken("admin"))
    assert admin.request(RevokeToken("till"))["revoked"] is True
    assert end(node.shell.connect(text)) == "token-revoked"


def test_a_token_makes_none_that_outlives_it() -> None:
    node = GuardedNode()
    client = node.client(["admin"], ["acme"], lasts_s=60.0)
    for lasts_s in (None, 61.0):
        with pytest.raises(NotAllowed, match="60 s"):
            client.request(CreateToken("heir", ["consume"], ["acme"], lasts_s=lasts_s))
    client.request(CreateToken("helper", ["consume"], ["acme"], lasts_s=60.0))


@pytest.mark.parametrize(
    "ask",
    [
        CreateToken("t", [], ["*"]),
        CreateToken("t", ["fly"], ["*"]),
        CreateToken("t", ["admin"], []),
        CreateToken("", ["admin"], ["*"]),
        CreateToken("t\n", ["admin"], ["*"]),
        CreateToken("t", ["consume"], ["*"], producer="p"),
        CreateToken("t", ["admin", "produce"], ["*"], producer="p"),
        CreateToken("t", ["admin"], ["*"], lasts_s=0.0),
        CreateToken("t", ["admin"], ["*"], lasts_s=float("nan")),
    ],
    ids=str,
)
def test_a_token_that_makes_no_sense_is_refused(ask: CreateToken) -> None:
    node = GuardedNode()
    with pytest.raises(BadRequest):
        node.admin.request(ask)


def test_a_connection_ends_by_itself_when_its_token_does() -> None:
    node = GuardedNode()
    client = node.client(["consume"], ["acme"], lasts_s=5.0)
    due_us = node.shell.core.due_us
    assert due_us is not None and due_us <= node.shell.now_us + 5_000_000
    node.shell.wait(5_000_000)
    assert end(client) == "token-expired" and client.closed


# --- answers ----------------------------------------------------------------------------------------


def test_secrets_are_in_no_text_that_is_made_of_a_message() -> None:
    created = TokenCreated(
        "hpd_x_SECRET", read_result(GuardedNode().admin.request(ShowToken("admin")), TokenInfo)
    )
    assert "SECRET" not in repr(created) + str(created)
    assert "SECRET" not in repr(Hello([1], "c", "hpd_x_SECRET"))


def test_a_tokens_whole_text_in_place_of_its_id_finds_it_and_is_kept_nowhere() -> None:
    node = GuardedNode()
    text = node.token(["consume"], ["acme"])
    token_id, secret = text.split("_", 2)[1:]
    assert node.admin.request(ShowToken(text))["token"] == token_id
    assert node.admin.request(RevokeToken(text))["token"] == token_id
    foreign = f"hpd_0123456789ab_{secret}"
    with pytest.raises(TokenNotFound) as caught:
        node.admin.request(RevokeToken(foreign))
    assert "0123456789ab" in caught.value.message
    log = node.admin.request(ListAdminLog())
    assert secret not in caught.value.message + str(log) and token_id in str(log)


def test_a_name_stands_for_the_token_of_it_that_is_not_revoked() -> None:
    node = GuardedNode()
    ask = CreateToken("till", ["produce"], ["acme"])
    for _ in range(3):
        made = node.made(node.admin, ask)
        assert node.admin.request(ShowToken("till"))["token"] == made.info.token
        node.admin.request(RevokeToken("till"))
    node.made(node.admin, ask)
    node.made(node.admin, ask)
    with pytest.raises(BadRequest, match="2 tokens"):
        node.admin.request(RevokeToken("till"))


def test_administration_is_logged_with_who_what_and_the_result() -> None:
    node = GuardedNode()
    stranger = node.client(["admin"], ["beta"])
    with pytest.raises(NotAllowed):
        stranger.request(DeleteTopic(TOPIC))
    node.admin.request(DeleteTopic(TOPIC))
    again = CoreShell(node.disk, seed=2).connect(node.admin_text)
    records = read_result(again.request(ListAdminLog(2)), list[AdminRecord])
    assert [(each.operation, each.what, each.result) for each in records] == [
        ("delete_topic", TOPIC, "not-allowed"),
        ("delete_topic", TOPIC, "done"),
    ]
    assert records[0].token and records[0].token != records[1].token
    assert records[1].name == "admin" and records[1].client == "twin"
    assert node.admin_text.split("_", 2)[2] not in str(again.request(ListAdminLog(100)))


def test_names_that_clients_choose_cannot_add_lines_to_the_log() -> None:
    shell = CoreShell(MemoryDisk(), seed=1)
    client = shell.connect(name="me\nfake line")
    with pytest.raises(BadTopicName):
        client.request(DeleteTopic("a\nb"))
    (record,) = read_result(client.request(ListAdminLog()), list[AdminRecord])
    assert (record.client, record.what) == ("me?fake line", "a?b")
    assert "\n" not in record.detail


def test_a_tokens_journal_that_rotted_does_not_open_the_node() -> None:
    node = GuardedNode()
    (name,) = node.disk.list("tokens")
    file = node.disk.open(f"tokens/{name}", writable=True)
    whole = file.read_at(0, file.size())
    file.write_at(40, [bytes(byte ^ 0xFF for byte in whole[40:200])])
    again = CoreShell(node.disk, seed=2)
    assert any("tokens" in line for line in again.core.stores.recovered)
    assert end(again.connect()) == "token-needed"
    assert end(CoreShell(node.disk, seed=3).connect()) == "token-needed"


def test_a_revocation_that_rotted_brings_no_token_back() -> None:
    node = GuardedNode()
    good = node.token(["consume"], ["acme"])
    stolen = node.made(node.admin, CreateToken("stolen", ["consume"], ["acme"]))
    (name,) = node.disk.list("tokens")
    file = node.disk.open(f"tokens/{name}", writable=True)
    before = len(file.read_at(0, file.size()).rstrip(b"\0"))
    node.admin.request(RevokeToken("stolen"))
    node.made(node.admin, CreateToken("later", ["consume"], ["acme"]))
    file.write_at(before + 20, [b"rot"])
    for seed in (2, 3):  # and what the first one made of it is what the second one finds
        again = CoreShell(node.disk, seed=seed)
        assert end(again.connect(stolen.secret)) == "token-revoked"
        assert end(again.connect(good)) == "token-revoked", "nothing tells whose revocation it was"
        again.work_all()


def test_a_torn_write_that_was_never_acknowledged_revokes_nothing() -> None:
    node = GuardedNode()
    node.admin.send(Request(99, CreateToken("torn", ["consume"], ["acme"])))
    (name,) = node.disk.list("tokens")
    file = node.disk.open(f"tokens/{name}", writable=True)
    torn = encode(FrameType.RECORD, b"half a frame")[:-6]
    file.write_at(len(file.read_at(0, file.size()).rstrip(b"\0")), [torn])
    again = CoreShell(node.disk, seed=2)
    assert any("torn write" in line for line in again.core.stores.recovered)
    assert end(again.connect(node.admin_text)) == ""


def test_a_tenants_admin_does_not_use_up_the_nodes_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "REACHED_MAX", 3)
    node = GuardedNode()
    acme = node.client(["admin"], ["acme"])
    ask = CreateToken("t", ["consume"], ["acme/shop"])
    made = [node.made(acme, ask) for _ in range(2)]
    with pytest.raises(LimitReached, match="3 within"):
        acme.request(ask)
    node.made(node.client(["admin"], ["beta"]), CreateToken("t", ["consume"], ["beta"]))
    node.made(node.admin, ask)
    acme.request(RevokeToken(made[0].info.token))
    node.made(acme, ask)
    with pytest.raises(TokenNotFound):
        acme.request(ShowToken(made[0].info.token))


def test_a_noisy_token_displaces_its_own_records_in_the_log() -> None:
    settings = msgspec.structs.replace(SMALL_FILES, limits=Limits(admin_records=20))
    shell = CoreShell(MemoryDisk(), seed=1, settings=settings)
    text = read_result(shell.connect().request(FIRST), TokenCreated).secret
    admin = shell.connect(text)
    for number in range(8):
        admin.request(CreateTopic(f"t{number}"))
    noisy = read_result(admin.request(CreateToken("noisy", ["consume"], ["*"])), TokenCreated).secret
    reader = shell.connect(noisy)
    reader.request(CreateSubscription("t0", "s"))
    for number in range(100):
        reader.request(PauseSubscription("t0", "s", number % 2 == 0))
    for again in (shell, CoreShell(shell.disk, seed=2, settings=settings)):
        asked = again.connect(text).request(ListAdminLog(1000))
        records = read_result(asked, list[AdminRecord])
        assert len(records) == 20
        assert [each.what for each in records if each.operation == "create_topic"] == [
            f"t{number}" for number in range(8)
        ]
        assert records == sorted(records, key=lambda each: each.at_us)


def test_refusals_do_not_push_out_completed_operations() -> None:
    node = GuardedNode()
    stranger = node.client(["admin"], ["beta"])
    for _ in range(100):
        with pytest.raises(NotAllowed):
            stranger.request(DeleteTopic(TOPIC))
    node.admin.request(DeleteTopic(TOPIC))
    records = read_result(node.admin.request(ListAdminLog(1000)), list[AdminRecord])
    assert sum(each.result == "not-allowed" for each in records) == 60
    assert records[-1].result == "done" and records[-1].detail.startswith("40 refusals")


def test_an_answer_waits_for_its_record_in_the_log() -> None:
    node = GuardedNode()
    node.admin.send(Request(99, CreateTopic("acme/shop/till/more")))
    node.shell.work()  # the catalog's write
    assert not node.admin.take(Response)
    node.shell.work()  # the log's
    assert node.admin.take(Response)


def test_the_grant_of_everything_covers_all() -> None:
    assert ALL.covers(Grant.parse(["admin"], ["*"])) and not Grant.parse(["admin"], ["a"]).covers(ALL)
