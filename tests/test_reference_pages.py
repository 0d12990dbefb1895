"""The reference pages agree with the code."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from headpond.broker import settings
from tests import reference_pages


@pytest.mark.parametrize("path", list(reference_pages.pages()), ids=lambda path: path.name)
def test_a_reference_page_is_what_the_code_says(path: Path) -> None:
    page = reference_pages.pages()[path]
    assert path.read_text(encoding="utf-8") == page, "write it: python -m tests.reference_pages"


@pytest.mark.parametrize(
    "kind",
    [settings.Settings, settings.Limits, settings.HttpLimits, settings.LogSettings, settings.StagingSettings],
)
def test_every_setting_says_what_it_means(kind: type[msgspec.Struct]) -> None:
    groups = {"limits", "http_limits", "log", "staging"}
    assert set(kind.__struct_fields__) - set(reference_pages.field_docs(kind)) <= groups
