"""An identity parses from its own text and from no other."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headpond.model.identity import Identity

IDENTITIES = st.builds(
    Identity,
    st.binary(min_size=16, max_size=16),
    st.integers(0, 2**16 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
)
GOOD = "00112233445566778899aabbccddeeff/1/2/3"


@given(IDENTITIES)
@settings(deadline=None)
def test_an_identity_is_read_back_as_written(identity: Identity) -> None:
    assert Identity.parse(str(identity)) == identity


def test_an_identity_is_written_block_shard_segment_row() -> None:
    assert str(Identity(bytes.fromhex(GOOD[:32]), 1, 2, 3)) == GOOD


@pytest.mark.parametrize(
    "text",
    [
        "",
        GOOD[1:],
        GOOD + "/4",
        GOOD.rpartition("/")[0],
        "zz" + GOOD[2:],
        GOOD[:30] + "  " + GOOD[32:],
        GOOD.replace("/1/", "/-1/"),
        GOOD.replace("/1/", "/ 1/"),
        GOOD.replace("/1/", "/1_0/"),
        GOOD.replace("/1/", "/01/"),
        GOOD.replace("/1/", "//"),
    ],
)
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        Identity.parse(text)
