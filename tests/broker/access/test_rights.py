"""No request reaches data outside its token's scope: every operation, every frame, with every wrong token."""

from __future__ import annotations

import typing
from collections.abc import Iterator

import pytest

from headpond.broker.access.rights import FRAMES, check, check_frame
from headpond.model.errors import HeadpondError, NotAllowed, WriterNotFound
from headpond.model.grant import Grant, Right
from headpond.model.policy import Policy
from headpond.wire.connection import FROM_CLIENT, ConnectionFault
from headpond.wire.control.access import CreateToken, ListTokens, RevokeToken, ShowAccess, ShowToken
from headpond.wire.control.catalog import (
    ChangeSettings,
    CreatePlace,
    CreateTopic,
    DeletePlace,
    ListPlaces,
    ListTopics,
)
from headpond.wire.control.codec import Operation, Request
from headpond.wire.control.consuming import (
    Browse,
    CreateSubscription,
    Deliver,
    ListSkipped,
    ListSubscriptions,
    ListUnacked,
    SeekSubscription,
    Settled,
    ShowSubscription,
    Subscribe,
    Subscribed,
)
from headpond.wire.control.greeting import Error
from headpond.wire.control.ledger import ShowLedger
from headpond.wire.control.links import (
    AdmitRecords,
    ApplyDropped,
    ApplySettled,
    FollowSubscriptions,
    FollowTopics,
    OfferHeads,
    OpenCopy,
    ReadDropped,
    ReadHeads,
    ReadSettled,
    TellPromoted,
)
from headpond.wire.control.operation import UNDECLARED, Control, OperationOf, Rule
from headpond.wire.control.producing import Ack, BlockEnd, ListProducers, OpenProducer
from headpond.wire.control.reading import Fetched, FetchEntries, FindTime, ReadEnds
from headpond.wire.control.staging import (
    AbortStages,
    CommitBatch,
    DeleteWriter,
    FinishStage,
    ListWriters,
    OpenStage,
    ShowWriter,
)
from headpond.wire.frame import FrameType
from headpond.wire.title import Predecessor
from tests.broker.access.guarded import ABSENT, BLOCK, STAGE, TOPIC, WRITER, GuardedNode, frames_about, samples
from tests.fire.core_shell import CoreClient
from tests.fire.raw_client import encode_chunk, segment_body, segment_frame, title_frame

OPERATIONS: list[type[Control]] = list(typing.get_args(Operation))
FRAME_TYPES = sorted(FROM_CLIENT)
FREE = (ShowAccess,)
"""Operations that every client with a token may use."""
CODES = {
    ShowToken: "token-not-found",
    RevokeToken: "token-not-found",
    FindTime: "topic-not-found",
    FetchEntries: "topic-not-found",
    FinishStage: "stage-not-found",
    ReadHeads: "topic-not-found",
    OfferHeads: "topic-not-found",
    AdmitRecords: "topic-not-found",
    ReadSettled: "topic-not-found",
    TellPromoted: "topic-not-found",
    OpenCopy: "topic-not-found",
    ReadDropped: "topic-not-found",
    ApplyDropped: "topic-not-found",
    ApplySettled: "topic-not-found",
}
"""Refusals of operations that name their object by an id: as if it did not exist."""
FOLLOWING = (FollowTopics, FollowSubscriptions)


@pytest.fixture(scope="module")
def node() -> GuardedNode:
    return GuardedNode()


def refusal(client: CoreClient, ask: Control) -> HeadpondError | None:
    try:
        client.request(typing.cast(Operation, ask))
    except HeadpondError as error:
        return error
    return None


# --- the table --------------------------------------------------------------------------------------


def test_every_frame_that_a_client_may_send_has_its_entry() -> None:
    assert set(FRAMES) == {*FROM_CLIENT, FrameType.HELLO}


def test_every_operation_is_walked_by_these_tests() -> None:
    assert set(samples()) == set(OPERATIONS), "add a sample of it in tests/broker/access/guarded.py"
    assert set(frames_about(b"")) == set(FROM_CLIENT)


def test_an_operation_without_a_rule_is_an_admins_of_everything() -> None:
    class Novel(OperationOf[None], frozen=True, tag="novel"):
        topic: str

    assert Novel.rule is UNDECLARED
    check(Grant.parse(["admin"], ["*"]), Novel(TOPIC))
    for grant in (Grant.parse(["admin"], ["acme"]), Grant.parse(["produce", "consume"], ["*"])):
        with pytest.raises(NotAllowed):
            check(grant, Novel(TOPIC))
        with pytest.raises(NotAllowed):
            check_frame(grant, 200)


# --- another tenant's token -------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["beta", "acme/shop/till/order", "acme/shop/till/orders-*", "acm", "default"])
def test_no_operation_reaches_outside_the_scope(node: GuardedNode, scope: str) -> None:
    stranger = node.client(["admin", "produce", "consume"], [scope])
    before = node.state
    for kind, ask in samples(TOPIC, node.uuid).items():
        if kind in FREE:
            continue
        if kind in (ListTopics, ListPlaces, ListWriters, ListTokens, *FOLLOWING):
            seen = stranger.request(typing.cast(Operation, ask))
            assert not [each for each in seen if "orders" in str(each) and scope != each["scopes"][0]], kind
            continue
        error = refusal(stranger, ask)
        assert error is not None, f"{kind.__name__} was answered"
        assert error.code == CODES.get(kind, "not-allowed"), kind
    assert node.state == before


def test_a_refusal_does_not_tell_whether_a_topic_exists(node: GuardedNode) -> None:
    stranger = node.client(["admin", "produce", "consume"], ["beta"])
    there, absent = samples(TOPIC, node.uuid), samples(ABSENT, b"n" * 16, b"n" * 16)
    for kind in OPERATIONS:
        one, other = refusal(stranger, there[kind]), refusal(stranger, absent[kind])
        assert (one is None) == (other is None), kind
        if one is not None and other is not None:
            said = one.message.replace(TOPIC, "T").replace(STAGE.hex(), "S")
            assert said == other.message.replace(ABSENT, "T").replace((b"n" * 16).hex(), "S")


@pytest.mark.parametrize("frame_type", FRAME_TYPES, ids=lambda each: FrameType(each).name)
def test_no_frame_reaches_outside_the_scope(node: GuardedNode, frame_type: int) -> None:
    stranger = node.client(["admin", "produce", "consume"], ["beta"])
    before = node.state
    for topic in (TOPIC, "beta/x/y/z"):  # the second names its own topic with the uuid of the other
        stranger.send(*frames_about(node.uuid, topic)[FrameType(frame_type)])
        node.shell.work_all()
    its_own: dict[str, list[str]] = {"topics": [], "places": [], "subscriptions": []}
    assert node.state | its_own == before | its_own
    holes = node.shell.core.context.counters["segments_in_holes"]
    assert holes == 0, "nobody declared anything of another's topic"
    assert not stranger.take(Deliver) and not stranger.take(Settled)
    subscribed = stranger.take(Subscribed)
    assert [each.topic for each in subscribed] == (["beta/x/y/z"] if frame_type == FrameType.SUBSCRIBE else [])
    for ack in stranger.take(Ack):
        assert {item.outcome for item in ack.items} == {"rejected"}
        assert {item.code for item in ack.items} <= {"not-allowed", "topic-not-found"}


# --- the wrong right, the wrong name ----------------------------------------------------------------


def needed(kind: type[Control]) -> set[Right]:
    rule: Rule = kind.rule  # type: ignore[attr-defined]
    return set(rule.rights)


@pytest.mark.parametrize("right", ["produce", "consume"])
def test_a_refusal_names_the_right_that_the_token_lacks(node: GuardedNode, right: str) -> None:
    client = node.client([right], ["*"])
    before = node.state
    for kind, ask in samples(TOPIC, node.uuid).items():
        if not needed(kind) or Right(right) in needed(kind):
            continue
        error = refusal(client, ask)
        assert isinstance(error, NotAllowed), kind
        assert any(missing in error.message for missing in needed(kind)), error.message
    client.send(*frames_about(node.uuid)[FrameType.SUBSCRIBE if right == "produce" else FrameType.SEGMENT])
    node.shell.work_all()
    assert node.state == before
    told = [event.code for event in client.take(Error)] + [i.code for a in client.take(Ack) for i in a.items]
    assert told == ["not-allowed"]


def test_a_token_bound_to_a_producer_sends_under_that_name_alone(node: GuardedNode) -> None:
    client = node.client(["produce"], ["acme"], producer="till-1")
    frames = frames_about(node.uuid)[FrameType.SEGMENT]
    client.send(*frames)
    node.shell.work_all()
    (ack,) = client.take(Ack)
    assert ack.items[0].code == "not-allowed" and "till-1" in ack.items[0].message
    assert isinstance(refusal(client, OpenProducer(TOPIC, "till-3", b"i" * 16)), NotAllowed)
    assert refusal(client, OpenProducer(TOPIC, "till-1", b"i" * 16)) is None
    assert isinstance(refusal(client, ShowLedger(TOPIC)), NotAllowed)
    assert [each["producer"] for each in client.request(ListProducers(""))] == ["till-1"]


def test_a_token_bound_to_a_producer_sends_in_no_block_of_another(node: GuardedNode) -> None:
    client = node.client(["produce"], ["acme"], producer="till-1")
    fork = Predecessor(BLOCK, {0: 1000})
    for title in (
        title_frame(BLOCK, node.uuid, topic=TOPIC, producer="till-1"),
        title_frame(b"f" * 16, node.uuid, topic=TOPIC, producer="till-1", predecessor=fork),
    ):
        client.send(title, segment_frame([b"forged"], segment=1), BlockEnd(BLOCK, {0: 1000}))
        node.shell.work_all()
        (ack,) = client.take(Ack)
        assert ack.items[0].code == "not-allowed"
    node.admin.send(title_frame(BLOCK, node.uuid, topic=TOPIC), segment_frame([b"own"], segment=1))
    node.shell.work_all()
    (ack,) = node.admin.take(Ack)
    assert ack.items[0].outcome == "stored", "its number was not used up"


def test_a_token_bound_to_a_subscription_reads_that_one_alone(node: GuardedNode) -> None:
    node.admin.request(CreateSubscription(TOPIC, "audit", exist_ok=True))
    client = node.client(["consume"], ["acme"], subscription="billing")
    for ask in (
        ShowSubscription(TOPIC, "audit"),
        ListUnacked(TOPIC, "audit"),
        ListSkipped(TOPIC, "audit"),
        SeekSubscription(TOPIC, "audit", 0),
        Browse(TOPIC, 0, 0),
        ReadEnds([TOPIC]),
        ReadEnds([TOPIC], subscription="audit"),
        FetchEntries(node.uuid, 0, 0),
        FindTime(node.uuid, 0, "audit"),
    ):
        assert isinstance(refusal(client, ask), NotAllowed)
    assert client.request(ReadEnds([TOPIC], subscription="billing"))[0]["uuid"] == node.uuid
    assert client.request(FindTime(node.uuid, 0, "billing")) == [0]
    client.send(Request(9, FetchEntries(node.uuid, 0, 0, subscription="billing")))
    node.shell.work_all()
    assert [fetched.number for fetched in client.take(Fetched)] == [9]
    abroad = node.client(["consume"], ["beta"], subscription="billing")
    assert isinstance(refusal(abroad, ReadEnds([TOPIC], subscription="billing")), NotAllowed)
    listed = client.request(ListSubscriptions(""))
    assert [each["subscription"] for each in listed] == ["billing"]
    client.send(Subscribe(1, TOPIC, "audit", "unique", "non_resilient", "earliest", 1024))
    node.shell.work_all()
    assert [each.code for each in client.take(Error)] == ["not-allowed"]


def test_dead_letters_do_not_carry_messages_out_of_the_scope(node: GuardedNode) -> None:
    client = node.client(["consume"], ["acme"])
    abroad = Policy(max_attempts=1, dead_letter="beta/x/y/stolen")
    assert isinstance(refusal(client, CreateSubscription(TOPIC, "s", policy=abroad)), NotAllowed)
    client.send(Subscribe(1, TOPIC, "s", "unique", "non_resilient", "earliest", 1024, policy=abroad))
    node.shell.work_all()
    assert [each.code for each in client.take(Error)] == ["not-allowed"]
    admin = node.client(["admin"], ["acme"])
    for ask in (
        ChangeSettings("topic", TOPIC, {"dead_letter": "beta/x/y/stolen"}),
        CreateTopic("acme/shop/till/new", settings={"dead_letter": "beta/x/y/stolen"}),
    ):
        assert isinstance(refusal(admin, ask), NotAllowed)


def test_a_writer_is_used_by_those_whose_scope_its_name_stands_below(node: GuardedNode) -> None:
    narrow = node.client(["admin", "produce"], ["acme/jobs"])
    stage = b"j" * 16
    broad = node.client(["produce"], ["acme"])
    broad.request(OpenStage(stage, "acme/jobs/nightly", TOPIC))
    for ask in (
        CommitBatch(WRITER, 9, []),
        CommitBatch("nightly", 9, []),
        DeleteWriter(WRITER),
        OpenStage(b"k" * 16, "acme/jobs/nightly", TOPIC),
    ):
        assert isinstance(refusal(narrow, ask), NotAllowed)
    for hidden in (FinishStage(stage, 0), CommitBatch("acme/jobs/nightly", 1, [stage])):
        error = refusal(narrow, hidden)
        assert error is not None and error.code == "stage-not-found", "its topic is out of reach"
    before = node.admin.request(ShowWriter("acme/jobs/nightly"))
    assert narrow.request(AbortStages("acme/jobs/nightly", [stage])) == 0
    narrow.send(encode_chunk(stage, 0, 0, segment_body([b"forged"])))
    node.shell.work_all()
    assert node.admin.request(ShowWriter("acme/jobs/nightly")) == before
    broad.request(FinishStage(stage, 0))
    assert broad.request(CommitBatch("acme/jobs/nightly", 1, [stage]))["outcome"] == "committed"
    broad.request(DeleteWriter("acme/jobs/nightly"))
    assert isinstance(refusal(broad, ShowWriter("acme/jobs/nightly")), WriterNotFound), "it may end its own"


def test_a_tenants_admin_does_not_choose_its_own_quotas(node: GuardedNode) -> None:
    admin = node.client(["admin"], ["acme"])
    for ask in (
        ChangeSettings("tenant", "acme", {"tenant_stored_bytes": None}),
        ChangeSettings("tenant", "acme", {}, ["tenant_stored_bytes"]),
        DeletePlace("tenant", "acme", True),
        CreatePlace("tenant", "acme"),
    ):
        assert isinstance(refusal(admin, ask), NotAllowed)
    assert refusal(admin, ChangeSettings("tenant", "acme", {"hard_ttl": "7d"})) is None


# --- no token, or one that is not good --------------------------------------------------------------


def bad_tokens(node: GuardedNode) -> Iterator[tuple[str | None, str]]:
    good = node.token(["admin"], ["*"])
    head, token_id, secret = good.split("_", 2)
    head = f"{head}_{token_id}"
    yield None, "token-needed"
    yield "", "token-needed"
    yield "letmein", "token-unknown"
    yield "hpd_" + "x" * 10_000, "token-unknown"
    yield "hpd_" + "x" * 100_000, "bad-frame"
    yield f"{head}_{secret[::-1]}", "token-unknown"
    yield f"hpd_{'0' * 12}_{secret}", "token-unknown"
    yield head + "_", "token-unknown"


def test_a_client_without_a_valid_token_is_refused(node: GuardedNode) -> None:
    before = node.state
    for text, code in bad_tokens(node):
        client = node.shell.connect(text)
        (fault,) = client.take(ConnectionFault)
        assert fault.error.code == code, text
        assert client.closed
        client.send(*[piece for frames in frames_about(node.uuid).values() for piece in frames])
        node.shell.work_all()
        assert client.events == []
    after = node.state
    assert {**after, "tokens": []} == {**before, "tokens": []}


@pytest.mark.parametrize("end", ["revoked", "expired"])
@pytest.mark.parametrize("frame_type", FRAME_TYPES, ids=lambda each: FrameType(each).name)
def test_a_connection_ends_with_its_token_whatever_it_sends_next(end: str, frame_type: int) -> None:
    node = GuardedNode()
    made = node.made(node.admin, CreateToken("t", ["admin"], ["*"], lasts_s=5.0))
    client = node.shell.connect(made.secret)
    client.send(Subscribe(1, TOPIC, "billing", "unique", "non_resilient", "earliest", 1024))
    node.shell.work_all()
    assert client.take(Subscribed)
    assert client.take(Deliver)
    client.events.clear()
    if end == "revoked":
        node.admin.request(RevokeToken(made.info.token))
    else:
        node.shell.now_us += 5_000_000  # nothing woke the node yet: the frame itself meets an expired token
    before = node.state
    client.send(*frames_about(node.uuid)[FrameType(frame_type)])
    node.shell.work_all()
    assert [fault.error.code for fault in client.take(ConnectionFault)] == [f"token-{end}"]
    assert client.closed and client.events == []
    assert {**node.state, "subscription": 0, "subscriptions": 0} == {
        **before,
        "subscription": 0,
        "subscriptions": 0,
    }
    again = node.shell.connect(made.secret)
    assert [fault.error.code for fault in again.take(ConnectionFault)] == [f"token-{end}"]


def test_operations_that_a_valid_token_allows_succeed(node: GuardedNode) -> None:
    client = node.client(["produce", "consume"], [TOPIC])
    assert [each["topic"] for each in client.request(ListTopics())] == [TOPIC]
    client.send(*frames_about(node.uuid)[FrameType.SEGMENT])
    client.send(Subscribe(1, TOPIC, "mine", "unique", "non_resilient", "earliest", 1024))
    node.shell.work_all()
    (ack,) = client.take(Ack)
    assert ack.items[0].outcome == "stored"
    assert client.take(Subscribed)
    assert client.take(Deliver)
