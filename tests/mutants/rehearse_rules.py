"""Rules of `eoslog rehearse`, broken: a promise that is not looked at, a name that is not its own, a wrong exit."""

from tests.mutants.mutant import Break, Mutant, mutants_of

HERE = "tests/rehearse/"
BROKERS = (f"{HERE}test_broken_brokers.py",)
NAMED = f"{HERE}test_broken_brokers.py::test_a_broken_broker_is_named"
FORGETS = f"{HERE}test_crashes.py::test_a_broker_that_forgets_in_a_crash_is_named"
KILLS = (f"{HERE}test_kills.py",)
WHOLE = (f"{HERE}test_rehearse.py",)

MUTANTS: list[Mutant] = [
    *mutants_of(
        "eoslog/rehearse/work.py",
        BROKERS,
        Break("rows too many are none", "        if lost or extra:\n", "        if lost:\n"),
        Break("rows that are missing are none", "        if lost or extra:\n", "        if extra:\n"),
        Break("readers that are held back are not", "        if held:\n", "        if False:\n"),
        Break("what must be refused may be done", "    raise DoesNotHold(what)\n", '    return "done"\n'),
    ),
    *mutants_of(
        "eoslog/rehearse/probes.py",
        BROKERS,
        Break(
            "a stable offset at the end is good",
            "    if len(held) < len(PARTITIONS):\n",
            "    if False:\n",
        ),
        Break("offsets of the aborted count", "    if found is not None:\n", "    if False:\n"),
        Break(
            "a sealed transaction may time out",
            "    if state.timeout_ms != NEVER_MS:\n",
            "    if False:\n",
            (f"{NAMED}[kept_transactions_time_out]",),
        ),
    ),
    *mutants_of(
        "eoslog/rehearse/time_out.py",
        (f"{HERE}test_time_out.py", *BROKERS),
        Break(
            "a transaction that has time may be gone",
            "        self.work.end(self.longer, commit=True)\n",
            "        pass\n",
        ),
        Break(
            "sealed ones may be gone",
            '        if state is None or state.state not in OPEN:\n            raise DoesNotHold(f"a sealed',
            '        if False:\n            raise DoesNotHold(f"a sealed',
        ),
    ),
    *mutants_of(
        "eoslog/rehearse/crash.py",
        WHOLE,
        Break("any command is a crash", "    if not lost:\n", "    if False:\n"),
    ),
    *mutants_of(
        "eoslog/rehearse/load.py",
        (f"{HERE}test_crashes.py",),
        Break(
            "an epoch may come again",
            "            if again.identity <= told",
            "            if False and told",
            (f"{FORGETS}[a_new_epoch_is_not_waited_for]",),
        ),
        Break(
            "what was told is not asked",
            "            if told.committed:\n",
            "            if False:\n",
        ),
    ),
    *mutants_of(
        "eoslog/rehearse/kills.py",
        (*KILLS, *WHOLE),
        Break(
            "the dead stay dead",
            "            if _has_begun(life) and not life.ended:\n",
            "            if False:\n",
        ),
        Break(
            "the last batch is not looked at",
            "rows_of(range(self.batch_id + 1)), told)",
            "self.work.rows(self.topic), told)",
        ),
        Break(
            "source offsets are not looked at",
            "        if found is None or found[0]",
            "        if False and found[0]",
        ),
        Break(
            "it ends when the dead one has", "        return not is_last\n", "        return not life.ended\n"
        ),
    ),
    *mutants_of(
        "eoslog/rehearse/cleanup.py",
        WHOLE,
        Break("transactions stay open", "partial(_abort, cluster))", "lambda name: None)"),
        Break("what was not deleted is not told", '        self.left += [f"topic', '        [f"topic'),
    ),
    *mutants_of(
        "eoslog/rehearse/rows.py",
        WHOLE,
        Break(
            "what is unknown holds",
            "NOT_FOUND_OUT if Verdict.UNKNOWN in found or not found else ALL_HOLD",
            "ALL_HOLD",
        ),
    ),
    *mutants_of(
        "eoslog/rehearse/limits.py",
        WHOLE,
        Break("any limit is long enough", "    if has >= needed:\n", "    if True:\n"),
        Break(
            "downtime does not count",
            "(self.batch_ms if self.sealed else self.away_ms) + SAFETY_MS",
            "self.batch_ms",
        ),
        Break("any retention is long enough", " and retention < query.away_ms:\n", " and False:\n"),
    ),
    *mutants_of(
        "eoslog/rehearse/limits.py",
        (f"{HERE}test_limits.py",),
        Break(
            "old brokers tell nothing of producers",
            " and limit.name == PRODUCERS:\n            values, instead =",
            " and False:\n            values, instead =",
        ),
        Break(
            "leaders ask everywhere",
            "if limit.name == PRODUCERS and query.verified and",
            "if limit.name == PRODUCERS and",
        ),
        Break("any replica may lead", '    if value == "false":\n', "    if value:\n"),
    ),
    *mutants_of(
        "eoslog/rehearse/command.py",
        (f"{HERE}test_principal.py",),
        Break("rights for a Kerberos principal", 're.split("[/@]", owner(sasl.kerberos))[0]', "sasl.user"),
        Break("rights for its host", '"[/@]"', '"@"'),
    ),
    *mutants_of(
        "eoslog/rehearse/granted.py",
        WHOLE,
        Break(
            "no right is missing", "        if bits is not None and not bits", "        if False and not bits"
        ),
    ),
]
