"""The words of the users' pages: sentences of 25 words at most, and none of what needs a second reading."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.docs.reader import ROOT
from tests.docs.test_evidence import users_pages

MOST_WORDS = 25
FORBIDDEN = {
    "filler": r"\bThere (?:is|are|was|were)\b",
    "there twice": r"\b(?:is|are|be|was|were) there twice\b",
    "whose": r"\b[Ww]hose\b",
    "lets pass": r"\blets? [\w' ]{0,30}pass\b",
    "goes forth": r"\bforth\b",
    "foretold": r"\bforet(?:old|ells?)\b",
    "anew": r"\banew\b",
}
"""What it is -> the pattern. CONTRIBUTING.md says why."""
MADE = {
    "commands.md",
    "connector-errors.md",
    "connector-options.md",
    "options.md",
    "python-api.md",
}
"""What is made from the code says what the code says."""


def prose(page: str) -> Iterator[str]:
    """The paragraphs, points and titles of a page, on one line each: no blocks, tables and comments."""
    text = re.sub(r"(?ms)^ *```.*?^ *```$|<!--.*?-->", "", page)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"</?[a-z][^>\n]*>", "", re.sub(r"`[^`]*`", "code", text))
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        ends = not line.strip() or line.startswith(("|", "#")) or re.match(r"\s*(?:[-*]|\d+\.) ", line)
        if ends and lines:
            yield " ".join(lines)
            lines = []
        if line.strip() and not line.startswith(("|", "#", "!!!")):
            lines.append(re.sub(r"^\s*(?:[-*]|\d+\.) ", "", line).strip().replace("**", ""))


def sentences(paragraph: str) -> list[str]:
    """Cut behind full stops, question marks and colons: what a reader takes in at once."""
    return [
        one for one in re.split(r"(?<=[.?!:;])\s+(?=[A-Z(\"]|code|eoslog)|(?<=[:;])\s+", paragraph) if one
    ]


def wrong(page: str) -> list[str]:
    """What a page says that needs a second reading."""
    found = []
    for paragraph in prose(page):
        for sentence in sentences(paragraph):
            words = re.findall(r"[\w'.%/-]*\w[\w'.%/-]*", sentence)
            if len(words) > MOST_WORDS:
                found.append(f"{len(words)} words: {sentence}")
        for what, pattern in FORBIDDEN.items():
            found += [f"{what}: {one[0]}" for one in re.finditer(pattern, paragraph)]
    return found


@pytest.mark.parametrize("page", [one for one in users_pages() if one not in MADE])
def test_a_page_needs_one_reading(page: str) -> None:
    assert wrong((ROOT / "docs" / page).read_text()) == []


@pytest.mark.parametrize(
    ("page", "count"),
    [
        ("One. Two, three.", 0),
        ("There is a topic whose rows are there twice.", 3),
        (f"A {'very ' * 25}long sentence.", 1),
        (f"```text\nA {'very ' * 25}long line.\n```\n| {'a ' * 30} |\n", 0),
        (f"- A point of {'few ' * 10} words\n- and another of {'few ' * 10} words\n", 0),
        (f"A sentence of {'few ' * 12} words: and {'a ' * 12} list.", 0),
    ],
)
def test_what_needs_a_second_reading_is_found(page: str, count: int) -> None:
    assert len(wrong(page)) == count
