"""Rules about places in the sink's log, broken: what is forgotten, what is lost, and what another has done."""

from tests.mutants.mutant import Break, Mutant, mutants_of

KEPT = ("tests/histories/test_kept.py",)
LOOKS = ("tests/connector/run/test_places_in_log.py",)
THREE = ("tests/histories/test_three_say_one.py",)
CROSSCHECK = ("tests/connector/checkpoint/test_crosscheck.py",)
ANEW = ("tests/connector/sink/test_topics_made_anew.py",)
OPEN = ("tests/connector/commit/test_proofs.py",)
NOTED = ("tests/connector/checkpoint/test_noted_places.py",)

MUTANTS: list[Mutant] = [
    *mutants_of(
        LOOKS,
        Break("a recovery does not look back", "look_back", "if not places:\n    return", "return", OPEN),
        Break("a part that was aborted is written again with all", "_is_aborted_everywhere", "where == set(decision.written)", "bool(where)", OPEN),
        Break("what was finished is not looked at", "_roll_forward", "(finish_late, look_back)", "(finish_late,)", OPEN),
        Break("rows that were deleted unread are committed", "finish_late", "yield from _find_unread(decision, states)", "{}", OPEN),
        Break("what was deleted unread is committed with its word", "give_up", "yield from abort_all([winner.ender for winner in loss.held])", "pass", KEPT),
        Break("a last row that is there tells of all", "why_unread", "last | {where: at for where, at in first.items() if at is not None}", "last", OPEN),
        Break("who does not tell has all", "why_unread", "last | {where: at for where, at in first.items() if at is not None}", "{where: at for where, at in first.items() if at is not None}", OPEN),
        Break("check does not see what was deleted unread", "find_lost", "if unread:\n    return _unread_text(decision, unread)", "pass", THREE),
        Break("rows that were deleted unread are decided", "why_gone_from", "state.begins > offset", "False", OPEN),
        Break("an abort on a partition alone is not seen", "why_gone_from", "-1 < state.opened.get(writer, -1) <= offset", "True", OPEN),
        Break("a part of a transaction is all of it", "why_gone_from", "-1 < state.opened.get(writer, -1) <= offset", "-1 < state.opened.get(writer, -1)", OPEN),
        Break("of rows in a partition the last one is the first", "Producer._locate", "min(base, self.first_rows.get(batch.where, base))", "base", ("tests/connector/run/test_writer_markers.py",)),
        Break("a write of foreachBatch does not look", "commit_within", "first = ballot.first_rows", "first = ()", ("tests/connector/run/test_writer_markers.py",)),
        Break("the first place of a partition counts", "places_of", "{place[:3]: place for place in found}", "{place[:3]: place for place in reversed(found)}"),
        Break("who has no last place is forgotten", "places_of", "(*last.values(), *of_writers.values())", "last.values()"),
        Break("a topic of the name is the topic", "made_anew", "then == now", "True"),
        Break("a log that is too short has all", "_lacks", "end <= p.offset", "end < 0"),
        Break(
            "what retention took is lost",
            "_look",
            "if list_offsets(cluster, {where: EARLIEST}, committed=False)[where] > place.offset:\n    return Seen.REMOVED",
            "if list_offsets(cluster, {where: EARLIEST}, committed=False)[where] > place.offset:\n    return Seen.GONE",
        ),
        Break("anybody's rows are the sink's", "_is_at", "ProducerIdentity(batch.producer_id, batch.producer_epoch) != place.writer", "ProducerIdentity(batch.producer_id, batch.producer_epoch) != place.writer and False"),
        Break("rows of another time are the same", "_is_at", "batch.max_timestamp != place.time_ms", "False"),
        Break("every transaction is committed", "_look", "Seen.ABORTED", "Seen.COMMITTED"),
        Break("batches are not looked at", "lacking", "_look(cluster, place) is Seen.GONE", "False"),
    ),
    *mutants_of(
        KEPT,
        Break("what is forgotten is lost", "_not_in_log", "[w for w in ended_else if seen.get(w) is not Seen.COMMITTED]", "[w for w in ended_else]"),
        Break("the log is not asked", "_not_in_log", "(yield from ask(LookAt(places))) if places else {}", "{}"),
    ),
    *mutants_of(
        (*KEPT, "tests/connector/sink/test_lost_rows.py"),
        Break("what is given up is lost again", "give_up", "yield from decide(sink, done, Stamp(*found), None, TwoPhase.NEVER, last)", "return\nyield from decide(sink, done, Stamp(*found), None, TwoPhase.NEVER, last)"),
    ),
    *mutants_of(
        NOTED,
        Break("a batch without rows hides the last one with rows", "NotedPlaces.after", "(one for one in before if one[1])", "(one for one in before)"),
        Break("rows that are written again are all there is", "NotedPlaces.after", "(*own, *places)", "places"),
        Break("a topic that was not written lately is forgotten", "NotedPlaces.after", "tuple(older.values())[-KEPT_PARTITIONS:]", "()"),
        Break("an attempt hides where rows are", "NotedPlaces.after", "_by_partition(last[1] if last else ())", "_by_partition([place for one in kept for place in one[1]])"),
        Break("a log that was cut is written on", "NotedPlaces.cut", "first.offset <= then.offset", "False"),
        Break("a topic's last place is enough", "_partition", "(place.topic, place.partition)", "(place.topic, 0)"),
        Break("what is gone is told again", "NotedPlaces.without", "type(self)(batches, _without(self.older, gone))", "self"),
        Break("a later version's note is read", "NotedPlaces.read", "found['version'] != _VERSION", "False"),
    ),
    *mutants_of(
        CROSSCHECK,
        Break("a rest forgives rows that are gone", "check_completed", "not rows.lacks and (rows.proven or (decided is None and rested))", "rows.proven or (decided is None and rested)"),
        Break("rows that are there need their decision", "check_completed", "rows.proven or (decided is None and rested)", "decided is None and rested"),
        Break("rows that follow after a rest are others'", "check_completed", "forgotten and (not rows.followed)", "forgotten"),
        Break("batches without rows lose some", "check_completed", "known or not rows.any or (forgotten and (not rows.followed))", "known or (forgotten and (not rows.followed))"),
        Break("who begins before others' batches is not told", "_twice", "not others", "True"),
        Break("others' batches are what was lost", "check_completed", "since < newest or others", "since < newest"),
        Break("others' batches are the sink's", "check_completed", "newest = min(newest, rows.newest)", "pass"),
        Break("rows of what is decided may be gone", "check_completed", "if known:\n    _check_rows(sink, rows, accepted)", "if False:\n    _check_rows(sink, rows, accepted)"),
        Break("the first batch's rows may be gone", "check_completed", "newest is None and decided is not None", "False", ANEW),
        Break("a new checkpoint goes on behind rows that are gone", "_new_checkpoint", "story.at_group or _goes_on(story)", "False"),
        Break("what was removed was never decided", "check_forgotten", "gone and missing not in accepted", "False"),
        Break("another topic of the name has shown it all", "check_forgotten", "one is by_writer[p.writer] is Seen.REPLACED", "False"),
        Break("what readers have had is written again", "check_forgotten", "written in accepted", "False"),
        Break("a part that is visible is all", "check_forgotten", "Seen.COMMITTED in how and others", "False"),
    ),
    *mutants_of(
        KEPT,
        Break("a forgotten decision is no decision", "check_forgotten", "how == {Seen.COMMITTED}", "False"),
        Break("a sink that is left forgets its decision", "StartOfRun.before", "self._remember(Sink(str(given.sink)), given.group)", "pass"),
        Break("nobody looks what follows", "rows_found", "() if known else tuple(followed(cluster, note.in_batches))", "()"),
        Break("places that are empty may have rows", "rows_found", "bool(places)", "True"),
        Break("the planned batch's own rows follow", "rows_found", "note.in_batches", "places", ("tests/histories/test_three_say_one.py",)),
        Break("rows that are there are not decided again", "StartOfRun._remember", "rows.proven and (not rows.followed)", "False"),
        Break("a batch is decided again that others follow", "StartOfRun._remember", "rows.proven and (not rows.followed)", "rows.proven"),
        Break("some of the rows are all of them", "rows_found", "set(look_at(cluster, places).values()) == {Seen.COMMITTED}", "True"),
        Break("another query's sink is its own", "rows_found", "decided is not None or last is None or last.of_query is None", "True"),
        Break("places are not held against the log", "rows_found", "_said(lacking(cluster, dict.fromkeys((*places, *note.up_to(batch)))))", "()"),
        Break("topics that were not written lately are not looked at", "rows_found", "(*places, *note.up_to(batch))", "(*places,)", ANEW),
        Break("what is accepted is told again", "StartOfRun.after", "rows.lacks and (not story.is_new)", "False", ANEW),
        Break("a rest is one of the last batch, whoever ran it", "StartOfRun.after", "has_rested(view, rows.newest)", "has_rested(view)"),
    ),
    *mutants_of(
        ("tests/connector/run/test_places_in_log.py",),
        Break("plain rows are a transaction's", "_follows", "batch.is_transactional and (not name or sink_of(name) is not None)", "not name or sink_of(name) is not None"),
        Break("another application's rows are ours", "_follows", "sink_of(name) is not None", "True"),
        Break("another sink's rows are an application's", "_follows", "sink_of(name) is not None", "False"),
        Break("any name is a writer's", "_Writers.name", "one.producer_id == producer_id", "True", KEPT),
        Break("what was aborted follows", "_follows", "True", "False"),
        Break(
            "nothing follows in other partitions",
            "followed",
            "if younger:\n    found = list_offsets(cluster, younger, committed=True)\n    first |= {tp: at for tp, at in found.items() if at >= 0}",
            "if False:\n    found = list_offsets(cluster, younger, committed=True)\n    first |= {tp: at for tp, at in found.items() if at >= 0}",
        ),
        Break("what was removed does not follow", "followed", "begins[topic, partition] > at + markers", "False"),
        Break("the batch's own marker follows", "followed", "at + markers", "at"),
        Break("older rows follow", "followed", "max((place.time_ms for place in wanted), default=0) + 1", "max((place.time_ms for place in wanted), default=0) * 0"),
        Break("what is there already follows", "followed", "place.offset + 1", "0"),
    ),
    *mutants_of(
        KEPT,
        Break("places are not noted", "_keep", "noted.after(batch_id, places, more=again).write(checkpoint)", "pass"),
        Break("a topic made anew takes the next rows", "_keep", "noted.remade(places, batch_id + again)", "''", ANEW),
        Break("what was never decided went with a topic made anew", "_keep", "batch_id + again", "batch_id + 1"),
        Break("the word for lost rows does nothing", "begin_stream", "runner.run(give_up(sink, options.accepted))", "pass"),
    ),
    *mutants_of(
        THREE,
        Break(
            "check does not look at places",
            "_warnings",
            "rows = rows_found(cluster, standing.checkpoint, view.completed, standing.decided, standing.decision)",
            "from eoslog.connector.checkpoint.start_checks import RowsFound\nrows = RowsFound()",
        ),
        Break("check knows no lost rows", "problems", "[*found, *_lost_rows(cluster, standing), *_lost(cluster, standing)]", "[*found, *_lost(cluster, standing)]"),
        Break("show does what it always does", "says", "f'stop: {found[0]}' if found else standing.next_start.value", "f'stop: {found[0]}' if False else standing.next_start.value"),
    ),
]
