"""The options of producers and consumers, with defaults that suit most programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from os import PathLike
from typing import Literal, NamedTuple, TypedDict

from headpond.client.arguments import check_options
from headpond.model.errors import BadRequest, HeadpondError, NotAcrossNodes
from headpond.model.identity import BLOCK_BYTES
from headpond.model.policy import Policy

KindName = Literal["unique", "shared", "failover", "key_shared"]
ModeName = Literal["non_resilient", "resilient"]

CREDIT_BYTES_MAX = 1024 * 1024 * 1024
"""The most that a node grants; with more, each side would wait for the other."""


DEFAULT_REFILL = "default"
"""The ``refill`` folder in the user's state folder."""


class LostSpan(NamedTuple):
    """Entries ``start <= n < end`` of a shard that will not come, and the reason."""

    shard: int
    start: int
    end: int
    reason: str


class NodeState(NamedTuple):
    """The state of one of the services that a consumer reads."""

    url: str
    node: str | None
    """The node that answers there, or that answered last."""
    state: str
    """``reading``, ``away`` (the client keeps trying) or ``failed``."""
    messages: int = 0
    """Messages from there, for a consumer that reads several."""
    error: HeadpondError | None = None


class ProducerKeywords(TypedDict, total=False):
    """The fields of ``ProducerOptions``, as the keywords of ``client.producer``."""

    create: bool
    batch_rows: int
    batch_bytes: int
    linger_s: float
    memory_max: int
    window_bytes: int
    ordered: bool
    timeout: float | None
    close_timeout: float
    copies: Sequence[str]
    refill: str | PathLike[str] | None
    refill_max: int
    refill_durability: str
    spill_after: float
    on_full: str
    rotate_after: float | None
    block_bytes_max: int
    block: bytes | str | None
    resume: bool
    may_duplicate: bool
    access: str | None
    wait: float | None
    late: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """How a producer gathers and holds messages."""

    create: bool = True
    """Create the topic if it does not exist and the node allows it."""
    batch_rows: int = 5000
    batch_bytes: int = 512 * 1024
    linger_s: float = 0.0
    """Seconds that rows may wait for more rows; 0 waits only for the end of the loop's iteration."""
    memory_max: int = 64 * 1024 * 1024
    """Bytes of unconfirmed messages in memory that are not spilled; see ``on_full``."""
    window_bytes: int = 16 * 1024 * 1024
    """Bytes sent to a destination and not answered."""
    ordered: bool = True
    """Whether the producer delivers what its earlier runs left in the refill before new messages."""
    timeout: float | None = None
    """Seconds to wait for room, and, without a refill, for a confirmation; None: no limit."""
    close_timeout: float = 30.0
    """Seconds that closing waits for confirmations before it leaves the rest to the refill."""
    copies: Sequence[str] = ()
    """Further destinations, each a service's URL: every message goes to all of them."""
    refill: str | PathLike[str] | None = DEFAULT_REFILL
    """The folder for messages that a destination does not take now; None keeps nothing on disk."""
    refill_max: int = 10 * 1024 * 1024 * 1024
    """Bytes that this producer's refill may take."""
    refill_durability: str = "sync"
    """``sync`` spills with an fdatasync, ``os`` leaves that to the operating system."""
    spill_after: float = 5.0
    """Seconds that a message waits for a destination before it is spilled."""
    on_full: str = "wait"
    """When memory and refill are full: ``wait`` or ``raise``, in ``send``; ``post`` always raises."""
    rotate_after: float | None = 2 * 60 * 60.0
    """Seconds after which a new block begins; None: never."""
    block_bytes_max: int = 1024 * 1024 * 1024
    """Bytes after which a new block begins."""
    block: bytes | str | None = None
    """With ``resume``: the block's 16 bytes, or 32 hex digits; None: the block of the last run."""
    resume: bool = False
    """Keep one block over all runs, with numbers reserved on disk ahead of use; needs a ``name``."""
    may_duplicate: bool = False
    """Also send messages spilled over 30 days ago: a node may no longer recognise them as duplicates."""
    access: str | None = None
    """``single``: one instance of this name at a time; ``multiple``: any number; None: as registered."""
    wait: float | None = 0.0
    """With single access: seconds to wait while another instance holds the lease; None: no limit."""
    late: bool = False
    """Send what instances kept that lost their lease, without a lease."""

    def __post_init__(self) -> None:
        check_options(self)
        sizes = ("batch_rows", "batch_bytes", "memory_max", "window_bytes", "refill_max", "block_bytes_max")
        for name in sizes:
            if getattr(self, name) <= 0:
                raise BadRequest(f"{name} is {getattr(self, name)}; it must be above 0")
        if self.refill is not None and (not str(self.refill) or "\0" in str(self.refill)):
            raise BadRequest(f"refill is {str(self.refill)!r:.60}; it must be the name of a folder")
        if self.linger_s < 0 or (self.timeout is not None and self.timeout <= 0):
            raise BadRequest("linger_s must not be negative, and timeout must be above 0 or None")
        if self.spill_after < 0:
            raise BadRequest("spill_after must not be negative")
        if self.rotate_after is not None and self.rotate_after <= 0:
            raise BadRequest("rotate_after must be above 0 or None")
        _check_word("refill_durability", self.refill_durability, ("sync", "os"))
        _check_word("on_full", self.on_full, ("wait", "raise"))
        if self.access is not None:
            _check_word("access", self.access, ("single", "multiple"))
        if self.wait is not None and not self.wait >= 0:
            raise BadRequest("wait must not be negative")
        if self.block is not None and not self.resume:
            raise BadRequest(
                "a block is named without resume=True", hint="Add resume=True, or leave block out."
            )
        if self.resume and self.refill is None:
            raise BadRequest("resume=True reserves numbers on disk and needs a refill folder")

    def check_name(self, name: str | None) -> None:
        """Refuses options that need a name if there is none."""
        if self.resume and not name:
            raise BadRequest("resume=True keeps a block under the producer's name", hint="Give it a name.")
        if self.access == "single" and not name:
            raise BadRequest("single access needs a producer's name", hint="Give it a name.")

    @property
    def block_bytes(self) -> bytes | None:
        """The requested block."""
        if self.block is None or isinstance(self.block, bytes):
            block = self.block
        else:
            try:
                block = bytes.fromhex(self.block)
            except ValueError:
                raise BadRequest(f"block {self.block!r} is not hexadecimal") from None
        if block is not None and len(block) != BLOCK_BYTES:
            raise BadRequest(f"a block is {BLOCK_BYTES} bytes long, not {len(block)}")
        return block


class ConsumerKeywords(TypedDict, total=False):
    """The fields of ``ConsumerOptions``, and the consumer's name, as keywords."""

    name: str | None
    kind: KindName
    mode: ModeName
    start: str | int | datetime
    credit_bytes: int
    create: bool
    close_timeout: float
    on_lost: Callable[[LostSpan], None] | None
    policy: Policy | None
    copies: Sequence[str]
    dedup: bool


def _check_word(name: str, word: str, allowed: tuple[str, ...]) -> None:
    if word not in allowed:
        raise BadRequest(f"{name} is {word!r}", hint=f"It is one of {', '.join(allowed)}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """How a consumer subscribes and reads."""

    kind: KindName = "unique"
    mode: ModeName = "non_resilient"
    start: str | int | datetime = "earliest"
    """Where a new subscription starts: ``earliest``, ``latest``, an entry or a time."""
    credit_bytes: int = 8 * 1024 * 1024
    """Bytes that the node may send ahead of what the program has; at most 1 GiB."""
    create: bool = True
    """Create the topic if it does not exist and the node allows it."""
    close_timeout: float = 30.0
    """Seconds that closing waits until settlements are on the node's disk."""
    on_lost: Callable[[LostSpan], None] | None = None
    """The consumer calls it with entries that this subscription will not get."""
    policy: Policy | None = None
    """When messages come again and when they are dead; like ``start``, only for a new subscription."""
    copies: Sequence[str] = ()
    """Further nodes that hold the same messages, each a service's URL: read all, and each message once."""
    dedup: bool = True
    """Whether the program gets a message that several nodes bring only once."""

    def __post_init__(self) -> None:
        check_options(self)
        if self.copies and self.mode == "resilient":
            raise NotAcrossNodes("a resilient order is that of one node's log: use it without copies")
        if self.copies and self.dedup and self.kind != "unique":
            raise NotAcrossNodes(
                f"each node gives each consumer of a {self.kind} subscription other messages, "
                "so that none of them can recognise copies"
            )
        if self.policy is not None:
            self.policy.checked()
        if not 0 < self.credit_bytes <= CREDIT_BYTES_MAX:
            raise BadRequest(f"credit_bytes is {self.credit_bytes}; it must be in 1 .. {CREDIT_BYTES_MAX}")
