"""The pages whose blocks start queries, typed with Spark processes of their own: make test-docs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import PAGES, ROOT, blocks_of, needs_spark
from tests.docs.reader import Reader

pytestmark = pytest.mark.long

WITH_SPARK = [page for page in PAGES if needs_spark(page)]


@pytest.mark.parametrize("page", WITH_SPARK, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_says_can_be_typed(page: Path, tmp_path: Path) -> None:
    with Reader(tmp_path) as reader:
        for block in blocks_of(page):
            if block.is_run_here:
                reader.type(block)
