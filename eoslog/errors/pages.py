"""Where the docs tell of an error or a warning: messages name page and section by `see`.

A section that moves to another page moves here, too. A test compares this with the pages.
"""

_SECTIONS = {
    "errors/start.md": ("brokerunreachable",),
    "errors/reading.md": (
        "dataloss",
        "no-committed-record-can-be-read",
        "no-whole-batch-can-be-read",
        "offsets-are-missing-in-the-midst-of-a-partition",
    ),
    "errors/writing.md": ("markersmissing", "participantslost"),
    "logins.md": ("kerberos",),
    "errors/warnings.md": (
        "a-batch-is-over-and-may-hold-back-readers",
        "a-batch-over-very-many-topics-would-stop",
        "a-checkpoint-at-a-relative-place",
        "a-filter-on-timestamp-is-not-pushed-down",
        "a-write-may-belong-to-a-micro-batch",
        "another-connector-has-run-batches",
        "micro-batches-cannot-be-remembered",
        "readers-may-see-a-part-of-a-batch",
        "rows-of-foreachbatch-were-not-written-again",
        "source-offsets-are-left-out-of-a-commit",
        "the-checkpoint-is-new",
        "the-cluster-has-forgotten-a-decision",
        "the-group-was-committed-by-several-sinks",
        "the-offsets-of-the-group-were-changed",
        "the-sink-has-decided-no-batch-of-this-query",
        "the-state-is-saved-again",
    ),
}
PAGES = {section: page for page, sections in _SECTIONS.items() for section in sections}
"""Section -> page of docs/."""


def see(section: str) -> str:
    """The last sentence of a message."""
    return f"See {PAGES[section]}#{section}"
