"""The Python blocks of the documents run, from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import ROOT

PAGES = sorted(
    page for page in [ROOT / "README.md", *ROOT.glob("docs/*.md"), ROOT / "crates/python/README.md"]
    if "```python\n" in page.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_blocks_run(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, object] = {"__name__": "document"}
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    for block in blocks:
        exec(compile(block, str(page), "exec"), names)
