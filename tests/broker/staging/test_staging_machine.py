"""Any order of staging, committing, aborting, disk work, failing disks and power cuts, against a model.

The model remembers the rows of each batch and the node's answers. The rules are in ``StagingWorld.check``;
hypothesis looks for the shortest way to break one.
"""

from __future__ import annotations

import errno
from typing import Literal

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headpond.storage.memory_disk import Keep
from tests.fire.staging_world import WRITERS, StagingWorld

WRITER = st.sampled_from(WRITERS)


class Staging(RuleBasedStateMachine):
    world: StagingWorld

    @initialize(seed=st.integers(0, 2**16))
    def begin(self, seed: int) -> None:
        self.world = StagingWorld(seed)

    @rule(writer=WRITER)
    def commit(self, writer: str) -> None:
        self.world.commit(writer)

    @rule(writer=WRITER)
    def stage_in_vain(self, writer: str) -> None:
        self.world.stage_in_vain(writer)

    @rule(writer=WRITER)
    def repeat(self, writer: str) -> None:
        self.world.repeat(writer)

    @rule(choices=st.lists(st.integers(0, 9), min_size=1, max_size=5))
    def work(self, choices: list[int]) -> None:
        for choice in choices:
            if self.world.shell.pending:
                self.world.shell.work(choice % len(self.world.shell.pending))
        self.world.listen()

    @rule(operation=st.sampled_from(["write", "sync", "read", "rename"]), after=st.integers(0, 3))
    def fail(self, operation: Literal["write", "sync", "read", "rename"], after: int) -> None:
        self.world.disk.fail_next(operation, errno.EIO, after=after)
        self.world.settle()
        self.world.disk.fail_never()
        self.world.settle()

    @rule(keep=st.sampled_from(["none", "some", "all"]))
    def cut(self, keep: Keep) -> None:
        self.world.cut(keep)

    @rule()
    def commit_again(self) -> None:
        self.world.commit_again()

    @invariant()
    def nothing_is_broken(self) -> None:
        if hasattr(self, "world"):
            assert self.world.faults == []

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.commit_again()
            assert self.world.faults == []


TestStaging = Staging.TestCase
TestStaging.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
