"""The programs and commands on the pages about Spark run, in one session, and print what the pages say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.documents.blocks import PAGES
from tests.documents.pages import run_page
from tests.documents.test_pages import is_on_spark, runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    "page", [page for page in PAGES if runs(page) and is_on_spark(page)], ids=lambda page: page.name
)
def test_the_blocks_of_a_page_run(
    page: Path, spark: SparkSession, node_of_pages: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Java resolves the relative paths of a page, such as "checkpoint".
    spark._jvm.java.lang.System.setProperty("user.dir", str(tmp_path / "here"))  # type: ignore[union-attr]
    try:
        run_page(page, tmp_path, monkeypatch, node_of_pages)
    finally:
        for query in spark.streams.active:
            query.stop()
