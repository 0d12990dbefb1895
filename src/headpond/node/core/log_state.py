"""What a log has in memory, and what it says of itself: its place, its title, its options, its last file."""

from __future__ import annotations

from headpond.files.disk import Disk
from headpond.model.topic_settings import TopicSettings
from headpond.node.core.log_file import file_name
from headpond.node.core.log_readable import ReadableLog
from headpond.node.core.log_reader import StoredFile
from headpond.node.core.log_replay import Recovered
from headpond.node.core.log_rewrite import Place
from headpond.node.core.log_stage import LogOptions, LogWrite, Stage
from headpond.node.core.log_tail import Tail
from headpond.node.core.marks import DAY_US
from headpond.wire.schema_versions import versions_of
from headpond.wire.title import Title

TALLY_BYTES = 1024 * 1024
"""What tallies may take in the files beyond the room that records take."""


class LogState(ReadableLog):
    def __init__(
        self,
        disk: Disk,
        folder: str,
        found: Recovered,
        *,
        title: Title,
        shard: int,
        shard_power: int,
        options: LogOptions,
    ) -> None:
        super().__init__(disk, folder, found, shard, options.index_every_bytes)
        self.report = found.report
        self._incarnations = found.incarnations
        self._lost_from = found.lost_from
        """The first of the entries that were lost at the end when the log was opened."""
        self._begun = False
        """Whether this run has begun an incarnation, or staged that."""
        self.entry_next = found.next_entry
        """The next to assign, staged ones counted."""
        self.entry_taken = found.next_entry
        """One past the last entry that ``take`` handed over."""
        self._title = title
        self._schemas = versions_of(title)
        self._retitled = found.outdated
        """Whether the file being written begins with an older title."""
        self._shard_power = shard_power
        self._options = self._base_options = options
        self._stored_at_us = found.stored_at_us
        self._tally_room = TALLY_BYTES
        self._tail = Tail(found)
        self._stage = Stage()
        self._under_way: LogWrite | None = None
        self.bytes_written = 0
        """Since it was opened."""
        self.peer_hold_us = 0
        """Blocks are remembered for so long at the least, ended or not: a peer may bring them again."""

    @property
    def stored_at_us(self) -> int:
        """When the last record was stored, staged ones counted."""
        return self._stored_at_us

    @property
    def incarnation(self) -> int:
        """The one that goes with the durable end as a position."""
        return self._incarnations.at(self.entry_durable)

    def incarnation_at(self, entry: int) -> int:
        """The one that goes with an entry as a position."""
        return self._incarnations.at(entry)

    def holds(self, incarnation: int, entry: int, end: int | None = None) -> bool:
        """Whether the log up to ``entry``, or ``end`` if it reaches so far, is what that incarnation had."""
        last = self._incarnations.end_of(incarnation)
        reach = entry if end is None else max(entry, min(end, self.entry_durable))
        return entry <= self.entry_durable and reach <= last

    @property
    def staged_bytes(self) -> int:
        """What ``take`` would hand over."""
        return self._stage.bytes

    @property
    def creates(self) -> str | None:
        """The file that the next write makes, if it makes one."""
        first = self._stage.head_first
        return None if first is None else f"{self._folder}/{file_name(first)}"

    @property
    def shared_bytes(self) -> int | None:
        """How much is staged for a write that can share its sync with other logs; None for one that cannot."""
        shared = self._stage.head_first is None and self._options.sync and self._tail.proven
        return self._stage.bytes if shared else None

    def retitle(self, title: Title) -> None:
        """What is said of the topic has changed: what is appended from now on stands in a file that says so."""
        self._title, self._retitled = title, True
        self._schemas = versions_of(title)

    def follow(self, settings: TopicSettings) -> None:
        """What the topic's settings say holds from the next write on."""
        self._options = self._base_options.for_topic(settings)
        self.of_state = settings.state

    def release(self) -> bool:
        """Closes the file between writes, for others to be open; False where a write is under way."""
        if self._under_way is None:
            self._tail.release()
        return self._under_way is None

    def forget_blocks(self, now_us: int) -> int:
        """Lets go of the marks of blocks that were closed or silent for long; returns how many there were."""
        return len(self._forget(now_us))

    def _forget(self, now_us: int, keep: bytes | None = None) -> list[bytes]:
        hold_us = self.peer_hold_us
        return self.marks.forget(
            now_us,
            after_end_us=max(DAY_US, hold_us),
            after_silence_us=max(self._options.forget_silent_us, hold_us),
            keep=keep,
        )

    @property
    def may_expire(self) -> bool:
        """Whether some file goes once the messages in it have expired."""
        return bool(self._tail.expires_us) or any(file.expires_us is not None for file in self._view.files)

    @property
    def place(self) -> Place:
        every_bytes = self._options.index_every_bytes
        return Place(self._folder, self._shard, self._shard_power, self._title, every_bytes)

    @property
    def rotate_bytes(self) -> int:
        return self._options.rotate_bytes

    def stored_files(self) -> list[StoredFile]:
        """The durable files, oldest first, as retention looks at them."""
        # What is staged may begin a new file: then nothing is said of the one that it follows.
        expires_us = self._tail.expires_us if self._stage.head_first is None else None
        return self._view.stored(self._stored_at_us, expires_us or None)
