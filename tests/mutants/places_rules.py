"""Rules about places in the sink's log, broken: what is forgotten, what is lost, and what another has done."""

from tests.mutants.mutant import Break, Mutant, mutants_of

KEPT = ("tests/histories/test_kept.py",)
LOOKS = ("tests/connector/run/test_places_in_log.py",)
THREE = ("tests/histories/test_three_say_one.py",)
CROSSCHECK = ("tests/connector/checkpoint/test_crosscheck.py",)
ANEW = ("tests/connector/sink/test_topics_made_anew.py",)
NOTED = ("tests/connector/checkpoint/test_noted_places.py",)

MUTANTS: list[Mutant] = [
    *mutants_of(
        "connector/commit/places.py",
        LOOKS,
        Break(
            "the first place of a partition counts",
            "last = {place[:3]: place for place in found}",
            "last = {place[:3]: place for place in reversed(found)}",
        ),
        Break(
            "who has no last place is forgotten", "(*last.values(), *of_writers.values())", "last.values()"
        ),
        Break("a topic of the name is the topic", "or then == now:", "or True:"),
    ),
    *mutants_of(
        "connector/run/places_in_log.py",
        LOOKS,
        Break("a log that is too short has all", "if end <= p.offset", "if end < 0"),
        Break(
            "what retention took is lost",
            "            return Seen.UNKNOWN\n        batch,",
            "            return Seen.GONE\n        batch,",
        ),
        Break("anybody's rows are the sink's", "!= place.writer:", "!= place.writer and False:"),
        Break("rows of another time are the same", "batch.max_timestamp != place.time_ms", "False"),
        Break(
            "every transaction is committed", "Seen.ABORTED if aborted else", "Seen.COMMITTED if aborted else"
        ),
        Break("batches are not looked at", "if _look(cluster, place) is Seen.GONE", "if False"),
    ),
    *mutants_of(
        "connector/commit/finish.py",
        KEPT,
        Break("what is forgotten is lost", "if seen.get(w) is not Seen.COMMITTED], seen", "], seen"),
        Break(
            "the log is not asked",
            "answer = (yield from ask(LookAt(places))) if places else {}",
            "answer = {}",
        ),
    ),
    *mutants_of(
        "connector/commit/move_decision.py",
        (*KEPT, "tests/connector/sink/test_lost_rows.py"),
        Break(
            "what is given up is lost again",
            "yield from decide(sink, done, Stamp(*found)",
            "return\n        yield from decide(sink, done, Stamp(*found)",
        ),
    ),
    *mutants_of(
        "connector/checkpoint/noted_places.py",
        NOTED,
        Break(
            "a batch without rows hides the last one with rows",
            "one for one in before if one[1]",
            "one for one in before",
        ),
        Break("rows that are written again are all there is", "(*own, *places)", "places"),
        Break(
            "a topic that was not written lately is forgotten", "tuple(older.values())[-KEPT_TOPICS:]", "()"
        ),
        Break(
            "an attempt hides where rows are",
            "for place in (last[1] if last else ())}",
            "for one in kept for place in one[1]}",
        ),
        Break(
            "what is gone is told again",
            "return type(self)(batches, _without(self.older, gone))",
            "return self",
        ),
        Break("a later version's note is read", 'if found["version"] != _VERSION:', "if False:"),
    ),
    *mutants_of(
        "connector/checkpoint/start_checks.py",
        CROSSCHECK,
        Break("a rest forgives rows that are gone", "rested and not rows.lacks", "rested"),
        Break("rows that follow after a rest are others'", "(forgotten and not rows.followed)", "forgotten"),
        Break("batches without rows lose some", "if known or not rows.any or", "if known or"),
        Break(
            "who begins before others' batches is not told",
            "    if not others:\n        return",
            "    if True:\n        return",
        ),
        Break("others' batches are what was lost", "(since < newest or others)", "since < newest"),
        Break("others' batches are the sink's", "newest = min(newest, rows.newest)", "pass"),
        Break(
            "rows of what is decided may be gone",
            "    if known:\n        _check_rows",
            "    if False:\n        _check_rows",
        ),
        Break(
            "the first batch's rows may be gone",
            "if newest is None and decided is not None:",
            "if False:",
            ANEW,
        ),
        Break(
            "a new checkpoint goes on behind rows that are gone",
            "if story.at_group or _goes_on(story):",
            "if False:",
        ),
        Break("a part that is visible is all", "if Seen.COMMITTED in how and others:", "if False:"),
    ),
    *mutants_of(
        "connector/sink/start_of_run.py",
        KEPT,
        Break("a forgotten decision is no decision", "if how == {Seen.COMMITTED}:", "if False:"),
        Break(
            "a sink that is left forgets its decision",
            "            self._remember(Sink(str(given.sink)), given.group)\n",
            "",
        ),
        Break(
            "nobody looks what follows", "() if known else tuple(followed(cluster, note.in_batches))", "()"
        ),
        Break("places that are empty may have rows", " bool(places), behind)", " True, behind)"),
        Break(
            "the planned batch's own rows follow",
            "followed(cluster, note.in_batches)",
            "followed(cluster, places)",
            ("tests/histories/test_three_say_one.py",),
        ),
        Break(
            "places are not held against the log",
            "    lacks = _said(lacking(cluster, dict.fromkeys((*places, *note.up_to(batch)))))",
            "    lacks = ()",
        ),
        Break("topics that were not written lately are not looked at", "*note.up_to(batch))", ")", ANEW),
        Break("what is accepted is told again", "if rows.lacks and not story.is_new:", "if False:", ANEW),
        Break(
            "a rest is one of the last batch, whoever ran it",
            "has_rested(view, rows.newest),\n            rows",
            "has_rested(view),\n            rows",
        ),
    ),
    *mutants_of(
        "connector/run/places_in_log.py",
        ("tests/connector/run/test_places_in_log.py",),
        Break("plain rows are a transaction's", "if batch.is_transactional:", "if True:"),
        Break("what was aborted follows", "start, end, committed=True):", "start, end, committed=False):"),
        Break(
            "nothing follows in other partitions",
            "    if younger:\n        found",
            "    if False:\n        found",
        ),
        Break("older rows follow", "default=0) + 1)", "default=0) * 0)"),
        Break("what is there already follows", "place.offset + 1)", "0)"),
    ),
    *mutants_of(
        "connector/sink/committer.py",
        KEPT,
        Break(
            "places are not noted",
            "noted.after(batch_id, places, more=again).write(checkpoint)",
            "pass",
        ),
        Break(
            "a topic made anew takes the next rows",
            "if said := noted.remade(places, batch_id + again):",
            "if said := '':",
            ANEW,
        ),
        Break(
            "what was never decided went with a topic made anew",
            "noted.remade(places, batch_id + again)",
            "noted.remade(places, batch_id + 1)",
        ),
        Break(
            "the word for lost rows does nothing",
            "        start.before()\n        runner.run(give_up(sink, options.accepted))\n",
            "        start.before()\n",
        ),
    ),
    *mutants_of(
        "eoslog/checkpoint/checks.py",
        THREE,
        Break(
            "check does not look at places",
            "rows = rows_found(cluster, standing.checkpoint, view.completed, standing.decided, standing.decision)",
            "from eoslog.connector.checkpoint.start_checks import RowsFound\n    rows = RowsFound()",
        ),
        Break("check knows no lost rows", "*found, *_lost_rows(cluster, standing), *_lost", "*found, *_lost"),
        Break(
            "show does what it always does",
            "if found else standing.next_start.value",
            "if False else standing.next_start.value",
        ),
    ),
]
