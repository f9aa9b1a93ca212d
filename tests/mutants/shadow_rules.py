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
        Break("a first batch has no decision", "self.await_cut() if before is None else self.cut()", "self.cut()"),
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
        Break("who has taken over is a shadow again", "if noted == cut.sink:", "if False:"),
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
    *mutants_of(
        "eoslog/shadow/take_over.py",
        ("tests/shadow/test_take_over.py",),
        Break("a batch that is not done will do", "shadow.next_start is not NextStart.GO_ON", "False"),
        Break("the shadow may be behind", "    if seen.sequence != cut.sequence:", "    if False:"),
        Break("a few steps are enough", "len(steps) < LEAST_STEPS", "False"),
        Break("rows may be written again", "    if missing:\n", "    if False:\n"),
        Break("the versions may differ", "    if earlier:\n", "    if False:\n"),
        Break("any number of rows is added", "    if found.extra[-1] > MOST_LEFT:\n", "    if False:\n"),
        Break("rows of the last step are a difference", "found.extra[:-1]", "found.extra"),
        Break("rows of the shadow alone are lost", "    if not len(found.differing):\n        return None", "    return None"),
        Break("all rows of the shadow are written", "wanted = pa.array(np.isin(records.offset.to_numpy(), offsets))", "wanted = pa.array(np.ones(len(records), bool))"),
        Break("partitions do not matter", "    if [p for _, p in written] != [p for _, p in own]:", "    if False:"),
        Break("open transactions do not matter", "    if held:\n", "    if False:\n"),
        Break("it is taken over twice", "    if not place.is_taken:\n        source", "    if True:\n        source"),
        Break("the checkpoint keeps its sink", "    noted.write(shadow.checkpoint)\n", ""),
        Break("the shadow's sink gets the batches from the first on", "shadow.cluster_id, batch.batch_id, cut.group", "shadow.cluster_id, 0, cut.group"),
    ),
]  # fmt: skip
