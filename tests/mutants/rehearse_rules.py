"""Rules of `eoslog rehearse`, broken: a promise that is not looked at, a name that is not its own, a wrong exit."""

from tests.mutants.mutant import Break, Mutant, mutants_of

HERE = "tests/rehearse/"
BROKERS = (f"{HERE}test_broken_brokers.py",)
NAMED = f"{HERE}test_broken_brokers.py::test_a_broken_broker_is_named"
FORGETS = f"{HERE}test_broken_brokers.py::test_a_broker_that_forgets_in_a_crash_is_named"
KILLS = (f"{HERE}test_broken_brokers.py",)
WHOLE = (f"{HERE}test_rehearse.py",)

MUTANTS: list[Mutant] = [
    *mutants_of(
        BROKERS,
        Break("rows too many are none", "Work.check_rows", "lost or extra", "lost"),
        Break("rows that are missing are none", "Work.check_rows", "lost or extra", "extra"),
        Break(
            "readers that are held back are not",
            "Work.check_readable",
            "if held:\n"
            "    (name, number), (stable, end) = next(iter(held.items()))\n"
            "    raise DoesNotHold(f'{when}: readers are held back on {len(held)} of {len(PARTITIONS)} partitions for more than {self.patience_s:g} s (last stable offset of {name}-{number}: {stable}, its end: {end}). A marker is missing, or is not seen')",
            "if False:\n"
            "    (name, number), (stable, end) = next(iter(held.items()))\n"
            "    raise DoesNotHold(f'{when}: readers are held back on {len(held)} of {len(PARTITIONS)} partitions for more than {self.patience_s:g} s (last stable offset of {name}-{number}: {stable}, its end: {end}). A marker is missing, or is not seen')",
        ),
        Break("what must be refused may be done", "refused", "raise DoesNotHold(what)", "return 'done'"),
        Break("a stable offset at the end is good", "open_rows_are_hidden", "len(held) < len(PARTITIONS)", "False"),
        Break("offsets of the aborted count", "new_producer_aborts", "found is not None", "False"),
        Break("a sealed transaction may time out", "two_phase", "state.timeout_ms != NEVER_MS", "False", (f"{NAMED}[kept_transactions_time_out]",)),
    ),
    *mutants_of(
        (f"{HERE}test_rehearse_rows.py", *BROKERS),
        Break("a transaction that has time may be gone", "TimeOut._lasts", "self.work.end(self.longer, commit=True)", "pass"),
        Break("sealed ones may be gone", "TimeOut._stays_sealed", "state is None or state.state not in OPEN", "False"),
    ),
    *mutants_of(WHOLE, Break("any command is a crash", "look", "not lost", "False")),
    *mutants_of(
        (f"{HERE}test_broken_brokers.py",),
        Break("an epoch may come again", "Load.check", "again.identity <= told.who.identity", "False", (f"{FORGETS}[a_new_epoch_is_not_waited_for]",)),
        Break("what was told is not asked", "Load.check", "told.committed", "False"),
    ),
    *mutants_of(
        (*KILLS, *WHOLE),
        Break("the dead stay dead", "_Query.story", "_has_begun(life) and (not life.ended)", "False"),
        Break("the last batch is not looked at", "_Query._check", "rows_of(range(self.batch_id + 1))", "self.work.rows(self.topic)"),
        Break("source offsets are not looked at", "_Query._check", "found is None or found[0] != self.batch_id + 1", "False"),
        Break("it ends when the dead one has", "_Query.story", "is_last", "life.ended"),
    ),
    *mutants_of(
        WHOLE,
        Break("transactions stay open", "CleanUp._end_transactions", "partial(_abort, cluster)", "lambda name: None"),
        Break("what was not deleted is not told", "CleanUp._delete_topics", "self.left += [f'topic {name}: {why}' for name, why in left.items()]", "[f'topic {name}: {why}' for name, why in left.items()]"),
    ),
    *mutants_of(WHOLE, Break("what is unknown holds", "exit_status", "NOT_FOUND_OUT if Verdict.UNKNOWN in found or not found else ALL_HOLD", "ALL_HOLD")),
    *mutants_of(
        WHOLE,
        Break("any limit is long enough", "_compared", "has >= needed", "True"),
        Break("downtime does not count", "Query.transaction_ms", "(self.batch_ms if self.sealed else self.away_ms) + SAFETY_MS", "self.batch_ms"),
        Break("any retention is long enough", "topic_rows", "retention < query.away_ms", "False"),
    ),
    *mutants_of(
        (f"{HERE}test_rehearse_rows.py",),
        Break("old brokers tell nothing of producers", "broker_rows", "not values and limit.name == PRODUCERS", "not values and False"),
        Break("leaders ask everywhere", "broker_rows", "limit.name == PRODUCERS and query.verified and (row.verdict is Verdict.FAILS)", "limit.name == PRODUCERS and row.verdict is Verdict.FAILS"),
        Break("any replica may lead", "unclean_row", "value == 'false'", "value"),
    ),
    *mutants_of((f"{HERE}test_rehearse_rows.py",), Break("rights for a Kerberos principal", "_principal", "re.split('[/@]', owner(sasl.kerberos))[0]", "sasl.user"), Break("rights for its host", "_principal", "'[/@]'", "'@'")),
    *mutants_of(WHOLE, Break("no right is missing", "missing", "bits is not None", "False")),
]
