"""Rules of shadows, each broken."""

from tests.mutants.mutant import Break, Mutant, mutants_of

MUTANTS: list[Mutant] = [
    *mutants_of(
        "connector/commit/observe.py",
        ("tests/connector/commit/test_observe.py",),
        Break("a decision that is made just now is a fault", "answer.code == ErrorCode.UNSTABLE_OFFSET_COMMIT", "False"),
    ),
    *mutants_of(
        "connector/source/shadowed.py",
        ("tests/shadow/test_cuts.py",),
        Break("a later decision's rows may be among them", "after.sequence != decision.sequence", "False"),
        Break("open transactions do not matter", "if written != self._ends(", "if False and self._ends("),
        Break("readers see all", "self._shadow.topic, committed=False", "self._shadow.topic, committed=True"),
        Break("the same decision is a new batch", "before.sequence == cut.sequence", "False"),
        Break("a query that was set back is followed", "if back or (", "if False and ("),
        Break("another query's group will do", "        if others:", "        if False:"),
        Break("partitions not read yet are left out", "(position.offsets | ends)", "ends"),
    ),
    *mutants_of(
        "connector/checkpoint/shadow_check.py",
        ("tests/shadow/test_options.py",),
        Break("two sources may be shadows", "len(cuts) > 1", "False"),
        Break("the running query is stopped", "if sink == cut.sink:", "if False:"),
        Break("its group is moved", "if group == cut.group:", "if False:"),
        Break("its topic is written", "topic not in own or topic in written", "False"),
    ),
    *mutants_of(
        "eoslog/shadow/judge.py",
        ("tests/shadow/test_judge.py",),
        Break("half of a digest is enough", '_numbered(rows["digest"], rows["more"])', '_numbered(rows["digest"])'),
        Break("steps do not matter", '_numbered(content, rows["step"])', "content"),
        Break("late rows are missing", "paired = _rank(left_content, left_shadow) <", "paired = -1 >"),
    ),
    *mutants_of(
        "eoslog/shadow/steps.py",
        ("tests/shadow/test_steps.py",),
        Break("what comes before the first batch counts", "(batch or _is_empty(batches[number]))", "False"),
        Break("batches at one decision are steps", "found[-1].decision == step.decision", "False"),
        Break("a batch that is not done is compared", "if own_end is None or", "if"),
    ),
]  # fmt: skip
