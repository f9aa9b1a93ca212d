"""docs/scale.md's tables, made of docs/simulated.json, and whether what was foretold is what was measured.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.simulation.model import (
    SINK,
    Costs,
    MicroBatch,
    Network,
    Setting,
    apart,
    by_node,
    by_partition,
    decision_chunks,
    foretell,
    offset_records,
    participants,
    spread,
)

# -- foretold and measured -------------------------------------------------------------------------

Found = Mapping[str, Any]
"""A cluster's part of docs/simulated.json."""
COUNTED = 100
"""Tasks of the batch whose records are counted."""
BOUND, CLOCK_MS = 0.25, 3.0


def compared(found: Found) -> Iterator[tuple[str, str, float, float]]:
    """Tasks, figure, foretold and measured."""
    for tasks, measured in found["measured"].items():
        for figure, was in measured.items():
            yield tasks, figure, found["foretold"][tasks][figure], was


def wrongly_foretold(name: str, found: Found) -> list[str]:
    """What was foretold wrong: times outside the bound, counts at all."""
    wrong = [
        f"{name}, {tasks} tasks: {figure} took {was} ms, foretold were {said} ms"
        for tasks, figure, said, was in compared(found)
        if not close(said, was)
    ]
    if found["written"] != found["to_write"]:
        wrong.append(f"{name}: {COUNTED} tasks wrote {found['written']}, foretold were {found['to_write']}")
    return wrong


def close(foretold: float, measured: float) -> bool:
    """Within the bound, or within what clocks of milliseconds can tell."""
    return abs(foretold - measured) <= max(BOUND * measured, CLOCK_MS)


# -- tables ----------------------------------------------------------------------------------------

EXECUTORS, PARTITIONS, STATE_PARTITIONS = 100, 100, 50
"""One task at a time on each executor; partitions of the topic and of `__transaction_state`."""
TASKS, NODES = (100, 1_000, 10_000), (3, 10, 30)
WORDS = {"begin": "begin", "tasks": "tasks", "commit": "commit", "in_part": "seen in part"}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """In Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def foretold_and_measured(found: Found) -> str:
    """What each subject was foretold to take, and what it took."""
    rows = []
    for subject, figures in found.items():
        for tasks, measured in figures["measured"].items():
            for figure, was in measured.items():
                said = figures["foretold"][tasks][figure]
                ratio = f"{said / was:.2f}" if was else "-"
                rows.append((subject, f"{int(tasks):,}", WORDS[figure], f"{said:,}", f"{was:,}", ratio))
    return table(("on", "tasks", "what", "foretold, ms", "measured, ms", "ratio"), rows)


def costs_table(found: Found) -> str:
    """What single commands cost."""
    subjects = list(found)
    names = found[subjects[0]]["costs"]
    rows = (
        (name.replace("_", " "), *(_cost(found[subject]["costs"][name]) for subject in subjects))
        for name in names
    )
    return table(("command", *subjects), rows)


def _cost(pair: Sequence[float]) -> str:
    alone, each = pair
    return f"{alone:.2f} + {each:.3f}" if each else f"{alone:.2f}"


def counts_table() -> str:
    """Requests and records, of whatever cluster: one partition a task, nothing is sealed."""
    rows = []
    for tasks in TASKS:
        names = [who.name for who in participants(SINK, tasks, EXECUTORS)]
        chunks = decision_chunks(SINK, participants(SINK, tasks, EXECUTORS), "topic", PARTITIONS)
        batch = MicroBatch(tasks)
        fullest = max(by_partition(names, STATE_PARTITIONS).values())
        commit = batch.requests()["commit"]
        rows.append(
            (
                f"{tasks:,}",
                f"{tasks + 1:,}",
                f"{batch.state_records:,}",
                f"{fullest:,}",
                f"{batch.markers:,}",
                f"{chunks:,}",
                f"{offset_records(chunks):,}",
                f"{commit['EndTxn']:,}",
            )
        )
    head = (
        *(
            "tasks",
            "transactions",
            "records in `__transaction_state`",
            "tasks of its fullest partition (of 50)",
        ),
        *("markers", "partitions of `__consumer_offsets` that the decision takes"),
        *("records in `__consumer_offsets`", "EndTxn"),
    )
    return table(head, rows)


def clusters_table(one: Costs, round_trip: float) -> str:
    """Clusters of more nodes, each with a machine of its own."""
    rows = []
    for nodes in NODES:
        costs = apart(one, Network(nodes, round_trip))
        for tasks in TASKS:
            rows.append(_cluster_row(nodes, tasks, costs, round_trip))
    head = (
        *(
            "nodes",
            "tasks",
            "connections, at most",
            "begin, ms",
            "tasks, ms",
            "commit, ms",
            "seen in part, ms",
        ),
        *("InitProducerId/s", "EndTxn/s", "markers/s", "of the fullest partition"),
    )
    return table(head, rows)


def _cluster_row(nodes: int, tasks: int, costs: Costs, round_trip: float) -> Sequence[str]:
    leaders = spread(STATE_PARTITIONS, nodes)
    told = foretell(tasks, Setting(leaders, EXECUTORS, PARTITIONS), costs)
    names = [who.name for who in participants(SINK, tasks, EXECUTORS)]
    coordinators = len(by_node(names, leaders))
    batch = MicroBatch(tasks, min(tasks, EXECUTORS), nodes, coordinators, coordinators)
    fullest = max(by_partition(names, STATE_PARTITIONS).values()) / tasks
    ends = tasks / told.in_part * 1000
    return (
        f"{nodes}",
        f"{tasks:,}",
        f"{batch.connections():,}",
        *(f"{value:,.0f}" for value in (told.begin, told.tasks, told.commit, told.in_part)),
        f"{tasks / told.tasks * 1000:,.0f}",
        *[f"{ends:,.0f}"] * 2,
        f"{ends * fullest:,.0f}",
    )


def filled(page: str, found: Found) -> str:
    """The page with its tables made anew. Raises ValueError if one has no place there."""
    for name, text in all_tables(found).items():
        begin, end = f"<!-- simulated: {name} -->\n", "<!-- end -->"
        head, _, rest = page.partition(begin)
        if not rest:
            raise ValueError(f"docs/scale.md has no place for the table {name!r}: {begin.strip()}")
        page = f"{head}{begin}{text}{end}{rest.partition(end)[2]}"
    return page


def all_tables(found: Found) -> dict[str, str]:
    """By name, as docs/scale.md marks them. Of larger clusters only if all was foretold that was measured."""
    wrong = [text for name, figures in found.items() for text in wrongly_foretold(name, figures)]
    one = Costs.from_json(found["one Kafka node"]["costs"])
    nothing = "Nothing is said of larger clusters, because this was foretold wrong:\n\n"
    said = clusters_table(one, 0.5) if not wrong else nothing + "".join(f"- {text}\n" for text in wrong)
    return {
        "foretold and measured": foretold_and_measured(found),
        "costs": costs_table(found),
        "counts": counts_table(),
        "clusters": said,
    }
