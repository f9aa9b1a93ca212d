"""Rules of the source, broken; and where rows go, and what they are."""

from tests.mutants.mutant import Break, Mutant, mutants_of

HERE = "tests/connector/"
SMALL = (f"{HERE}source/test_small_batches.py",)
READER = (
    f"{HERE}source/test_read_range.py",
    f"{HERE}run/test_trap_defences_outside.py",
    f"{HERE}source/test_source_stream.py",
    f"{HERE}source/test_untold.py",
    f"{HERE}source/test_source_deleted.py",
    f"{HERE}source/test_source_times.py",
    f"{HERE}checkpoint/test_crosscheck_broker.py",
)
PLAN = (f"{HERE}test_offsets.py", f"{HERE}checkpoint/test_crosscheck.py", f"{HERE}source/test_source_deleted.py", f"{HERE}source/test_source_stream.py")
LEFT = (f"{HERE}source/test_source_deleted.py",)
PUSHED = (f"{HERE}source/test_pushed_filters.py",)
PUSHED_READ = (f"{HERE}source/test_pushed_filters.py",)
ROUTING = (f"{HERE}sink/test_writer_routing.py",)
TALLY = (f"{HERE}sink/test_task_steps.py",)

MUTANTS: list[Mutant] = [
    *mutants_of(
        ("tests/connector/source/test_past_batches.py",),
        Break("a former query's batch is taken", "PastBatches._of_batch", "decision.batch.query_id == query", "True"),
        Break("a later batch is taken", "PastBatches._of_time", "one.time_ms <= until", "True"),
        Break("a decision that is gone is passed over", "PastBatches._of_time", "following in (None, 1, decision.sequence + 1)", "True"),
        Break("a first decision says that nothing was before", "PastBatches._is_others", "ProducerIdentity(first.producer_id, first.producer_epoch) not in writers", "False"),
        Break("a partition's first rows are forgotten", "PastBatches._writers_after", "stored[at + 1:]", "stored[at:]"),
        Break("a partition that the next batch has begun is unknown", "PastBatches._is_others", "ProducerIdentity(first.producer_id, first.producer_epoch) not in writers", "True"),
        Break("a write of foreachBatch forgets where its rows are", "Namer.copy", "(*last.older_of_write(decision.places, decision.written), *decision.places)", "()"),
        Break("rows that were not told are behind no place", "_named_since", "found.difference_update(set(one.written) - told)", "pass"),
        Break("places from before another name are the last ones", "_named_since", "_came_back(before, one)", "False"),
        Break("what a decision says of earlier ones is of this name", "PastBatches._placed", "placed.keys() & _named_since(made)", "placed.keys() if len(made) == 1 else placed.keys() & _named_since(made)"),
        Break("batches that another cluster has are none", "_came_back", "now.batch.batch_id - then.batch.batch_id > max(1, one.sequence - before.sequence)", "False"),
        Break("the last leave of a sink is the first one", "PastBatches._check_stayed", "one is not None and one.left is None", "True"),
        Break("a sink that was left is read to any time", "PastBatches._check_stayed", "(left := decision.left) is None", "True"),
        Break("retention took nothing where the sink has no row", "PastBatches._placed", "self._check_there(found, start)", "self._check_there({tp: placed[tp] for tp in start if tp in placed}, start)"),
        Break("what retention took is not missed", "PastBatches._check_there", "start[tp] == first[tp] > 0 and (not self._is_given(tp))", "False"),
        Break("a compacted topic is read as it was", "PastBatches._is_compacted", "'compact' in policy", "False"),
        Break("a log that was cut is read as it was", "PastBatches._check_same_logs", "at < placed[tp]", "False"),
        Break("a topic made anew is read as it was", "PastBatches._check_same_logs", "made_anew(place.topic, place.topic_id, ids[place.topic])", "''"),
        Break("what is open is read around", "PastBatches.ends", "end > start[where]", "False"),
    ),
    *mutants_of(
        LEFT,
        Break("what a query left is forgotten with the next batch", "to_json", "[*([] if shadow is None else shadow.names()), *left.names()]", "[*([] if shadow is None else shadow.names())]"),
        Break("a topic that was gone is the same one", "SourcePosition.back_in", "t in left.gone and ids.get(t, n) != n", "False"),
        Break("what is read again stays left", "SourcePosition.back_in", "{tp for tp in left.offsets if tp not in read}", "{tp for tp in left.offsets}"),
        Break("a topic that is named again is new", "StreamReader._next_end", "position = position.back_in(end, ids)", "pass"),
        Break("a batch that runs again takes it for new", "StreamReader.partitions", "position = position.back_in(planned.offsets, planned.ids)", "pass"),
        Break("what leaves is not kept", "StreamReader._next_end", "back_to(lost.parted, until)._replace(left=left)", "back_to(lost.parted, until)._replace()"),
    ),
    *mutants_of(
        PUSHED,
        Break("that there is no such time is believed alone", "_begins", "{tp: end[tp] for tp, at in times.items() if 0 <= at < since}", "{tp: end[tp] for tp in none}"),
        Break("brokers' clocks are never apart", "_ends", "until + CLOCKS_APART_MS", "until"),
        Break("a producer's time is taken for a broker's", "_is_by_broker", "found.get(place) == _LOG_APPEND_TIME", "True"),
        Break("producers' times are taken for rising", "_ends", "source.options.times_rise", "True"),
        Break("a word for an end is sent as a time", "narrowed", "since is not None and since > 0", "since is not None"),
        Break("a range begins before its options say", "narrowed", "max(at, begins.get(tp, at))", "begins.get(tp, at)", PUSHED_READ),
        Break("what no time can pass is read", "narrowed", "pushed.offsets.is_empty or pushed.times.is_empty", "pushed.offsets.is_empty"),
        Break("a time is rounded down", "_push_one", "-(-at // 1000)", "at // 1000"),
        Break("null is false, and not null true", "_holds", "None if inner is None else not inner", "not inner"),
        Break("a list with null finds nothing else", "_holds", "None if None in one.value else False", "False"),
        Break("a list is all between its ends", "_span", "known[-1] - known[0] + 1 == len(known)", "True"),
        Break("times are exact", "_push_one", "span in (Span(), NOTHING)", "True"),
        Break("equal is less", "_SPANS", "Span(None, at + 1)", "Span(None, at)"),
    ),
    *mutants_of(
        READER,
        Break("the position is not moved on", "read_range.read_range", "position = records.offset[-1].as_py() + 1", "pass"),
        Break("what was read is told as lost", "read_range.read_range", "records.offset[-1].as_py() + 1", "records.offset[-1].as_py()"),
        Break("open transactions are read", "read_range.read_range", "options.committed", "False"),
        Break(
            "another topic of the name is read",
            "read_range.read_range",
            "fetch(cluster, task.topic, task.partition, position, task.end, committed=options.committed, topic_id=task.topic_id, headers=options.headers)",
            "fetch(cluster, task.topic, task.partition, position, task.end, committed=options.committed, headers=options.headers)",
        ),
        Break(
            "offsets that are gone are no loss",
            "read_range.read_range",
            "try:\n"
            "    for records in fetch(cluster, task.topic, task.partition, position, task.end, committed=options.committed, topic_id=task.topic_id, headers=options.headers):\n"
            "        position = records.offset[-1].as_py() + 1\n"
            "        yield from batches(records, task.topic, task.partition, options.headers)\n"
            "    return\n"
            "except OffsetsGone as error:\n"
            "    report_loss(options.fail_on_data_loss, str(error))\n"
            "    position = _next_in_log(options, task, position) if error.behind < 0 else error.behind\n"
            "except TopicRecreated as error:\n"
            "    report_loss(options.fail_on_data_loss, str(error))\n"
            "    return\n"
            "except UnknownTopic as error:\n"
            "    rest = f'{task.topic}-{task.partition}: offsets {position} to {task.end - 1} cannot be read: {error}'\n"
            "    report_loss(options.fail_on_data_loss, rest)\n"
            "    return",
            "try:\n"
            "    for records in fetch(cluster, task.topic, task.partition, position, task.end, committed=options.committed, topic_id=task.topic_id, headers=options.headers):\n"
            "        position = records.offset[-1].as_py() + 1\n"
            "        yield from batches(records, task.topic, task.partition, options.headers)\n"
            "    return\n"
            "except OffsetsGone:\n"
            "    position = _next_in_log(options, task, position) if error.behind < 0 else error.behind\n"
            "except TopicRecreated as error:\n"
            "    report_loss(options.fail_on_data_loss, str(error))\n"
            "    return\n"
            "except UnknownTopic as error:\n"
            "    rest = f'{task.topic}-{task.partition}: offsets {position} to {task.end - 1} cannot be read: {error}'\n"
            "    report_loss(options.fail_on_data_loss, rest)\n"
            "    return",
        ),
        Break(
            "a topic created again is no loss",
            "read_range.read_range",
            "try:\n"
            "    for records in fetch(cluster, task.topic, task.partition, position, task.end, committed=options.committed, topic_id=task.topic_id, headers=options.headers):\n"
            "        position = records.offset[-1].as_py() + 1\n"
            "        yield from batches(records, task.topic, task.partition, options.headers)\n"
            "    return\n"
            "except OffsetsGone as error:\n"
            "    report_loss(options.fail_on_data_loss, str(error))\n"
            "    position = _next_in_log(options, task, position) if error.behind < 0 else error.behind\n"
            "except TopicRecreated as error:\n"
            "    report_loss(options.fail_on_data_loss, str(error))\n"
            "    return\n"
            "except UnknownTopic as error:\n"
            "    rest = f'{task.topic}-{task.partition}: offsets {position} to {task.end - 1} cannot be read: {error}'\n"
            "    report_loss(options.fail_on_data_loss, rest)\n"
            "    return",
            "try:\n"
            "    for records in fetch(cluster, task.topic, task.partition, position, task.end, committed=options.committed, topic_id=task.topic_id, headers=options.headers):\n"
            "        position = records.offset[-1].as_py() + 1\n"
            "        yield from batches(records, task.topic, task.partition, options.headers)\n"
            "    return\n"
            "except OffsetsGone as error:\n"
            "    report_loss(options.fail_on_data_loss, str(error))\n"
            "    position = _next_in_log(options, task, position) if error.behind < 0 else error.behind\n"
            "except TopicRecreated:\n"
            "    return\n"
            "except UnknownTopic as error:\n"
            "    rest = f'{task.topic}-{task.partition}: offsets {position} to {task.end - 1} cannot be read: {error}'\n"
            "    report_loss(options.fail_on_data_loss, rest)\n"
            "    return",
        ),
        Break("after a loss nothing is read", "_next_in_log", "first if first > position else task.end", "task.end"),
        Break("after a loss it begins before", "_next_in_log", "first if first > position else task.end", "first", hangs=True),
        Break("a topic made anew keeps its leader epochs", "moved_only", "{tp: at for tp, at in until.offsets.items() if tp[0] not in anew}", "until.offsets", ("tests/histories/test_kept.py",)),
        Break("whose they are is new data", "moved_only", "position.taken", "frozenset()"),
        Break("where it began is said for ever", "moved_only", "stands", "True"),
        Break("where it began is new data", "moved_only", "position.began", "None"),
        Break("it is not said whose offsets they are", "StreamReader.initialOffset", "now._replace(taken=self._log.taken, shadow=cut, left=left)", "now._replace(shadow=cut, left=left)"),
        Break(
            "a range that is turned is empty",
            "BatchReader.partitions",
            "if turned:\n    said = '; '.join((f'{t}-{p} from {start[t, p]} to {end[t, p]}' for t, p in turned))\n    raise OptionError(f'startingOffsets lies after endingOffsets: {said}; correct one of them')",
            "if False:\n    said = '; '.join((f'{t}-{p} from {start[t, p]} to {end[t, p]}' for t, p in turned))\n    raise OptionError(f'startingOffsets lies after endingOffsets: {said}; correct one of them')",
        ),
        Break("an end tells of another's beginning", "StreamReader.partitions", "planned.began is not None and position.began is None and (start == self._began)", "planned.began is not None and position.began is None"),
        Break("a whole run's end is not compared", "UntoldStreamReader._compare_untold", "_place(wanted) != _place(end)", "False"),
        Break("what was compared for a new query counts", "UntoldStreamReader._compare_untold", "({}, None, False, False)", "({}, None, False, True)"),
        Break("where the query stands is not heard", "UntoldStreamReader.partitions", "if start == end:\n    self._stands = start", "pass"),
        Break("an end is not the next start", "UntoldStreamReader.latestOffset", "self._stands = end", "pass"),
        Break("a first end is for good", "UntoldStreamReader.latestOffset", "self._free_end()", "pass"),
        Break("where it began is not stored", "StreamReader._next_end", "first and self._reads_nothing_at_first()", "False"),
        Break("a query that takes over begins with an empty batch", "StreamReader._reads_nothing_at_first", "self._moved() and self.options.taken_over is None", "self._moved()"),
        Break("a query that may begin later reads at once", "StreamReader._reads_nothing_at_first", "self._moved() and self.options.taken_over is None", "False"),
        Break("a first end with rows does not say whose offsets they are", "StreamReader._next_end", "until._replace(began=begin, taken=position.taken)", "until._replace(began=begin)"),
        Break("a first end does not say where it began", "StreamReader._next_end", "until._replace(began=begin, taken=position.taken) if first else until", "until"),
        Break("every end says where it began", "StreamReader._next_end", "until._replace(began=begin, taken=position.taken) if first else until", "until._replace(began=begin, taken=position.taken) if True else until"),
        Break("an empty first batch does not say where it is", "StreamReader._next_end", "position._replace(began=position.offsets)", "position"),
        Break("a first batch begins where startingOffsets says now", "StreamReader.partitions", "planned.began is not None and position.began is None and (start == self._began)", "False"),
        Break("an end that did not move is read again", "StreamReader.partitions", "planned.began is not None and position.began is None and (start == self._began)", "planned.began is not None"),
        Break("asked for its beginning twice it begins twice", "StreamReader.initialOffset", "self._began is None", "True"),
        Break("the log's cluster is not compared", "StreamReader._next_end", "position = self._on_this_cluster(position, self._log.met_cluster())", "pass"),
        Break("losses are not looked for", "StreamReader._reported", "report_loss(self.options.fail_on_data_loss, str(lost))", "pass"),
        Break("the log's beginning is never compared", "StreamReader._beginnings", "self._compared", "True"),
        Break("the log's beginning is asked for each time", "StreamReader._beginnings", "self._compared = True", "pass"),
        Break("available now goes on for ever", "StreamReader._end", "self._target is None", "True"),
        Break("the limit does not count", "StreamReader._next_end", "isinstance(limit, ReadMaxRows)", "False"),
        Break("a replay is not compared", "StreamReader.partitions", "not self._compared and position.offsets != planned.offsets", "False"),
        Break("a batch that goes back is no loss", "StreamReader.partitions", "if lost:\n    report_loss(self.options.fail_on_data_loss, str(lost))", "pass"),
        Break("a first batch of another source begins where latest is now", "StreamReader._begins_unknown", "start == self._began and bool(self._initial) and self._moved()", "False"),
        Break("no first batch of another source can be read", "StreamReader._begins_unknown", "start == self._began and bool(self._initial) and self._moved()", "start == self._began and bool(self._initial)"),
        Break("new partitions begin at their end", "StreamReader._begin", "EARLIEST", "LATEST"),
        Break(
            "what new partitions have lost is not told",
            "StreamReader._begin",
            "if late:\n    report_loss(self.options.fail_on_data_loss, f'new partitions do not begin at 0: {late}')",
            "if False:\n    report_loss(self.options.fail_on_data_loss, f'new partitions do not begin at 0: {late}')",
        ),
        Break("new partitions are looked for each time", "StreamReader._begin", "self._begins.update", "{}.update"),
        Break("topics created again are read on", "StreamReader._begin", "plan.without(start[0], plan.recreated(start[1], end[1]))", "start[0]"),
        Break("a target before the beginning", "StreamReader._reachable", "max(at, self._initial.get(tp, at))", "at"),
        Break("fixed offsets move", "_moves", "starting in (LATEST, COMMITTED)", "True"),
        Break("the group's offsets do not move", "_moves", "starting in (LATEST, COMMITTED)", "starting == LATEST"),
        Break("minOffsetsPerTrigger waits for ever", "StreamReader._too_few", "(time.monotonic() - self._last_batch) * 1000 >= delay_ms", "(time.monotonic() - self._last_batch) * 1000 >= 1e+18"),
        Break("minOffsetsPerTrigger does not wait", "StreamReader._too_few", "sum((max(end[tp] - begin[tp], 0) for tp in end)) < least", "sum((max(end[tp] - begin[tp], 0) for tp in end)) < 0"),
        Break(
            "a new query waits",
            "StreamReader._too_few",
            "if least is None or delay_ms is None or self._last_batch is None:\n    return False",
            "if least is None or delay_ms is None:\n    return False\nif self._last_batch is None:\n    return True",
        ),
        Break("the end of a replay may be gone", "StreamReader._compare_replay", "{tp: at for tp, at in until.offsets.items() if begin.offsets.get(tp, 0) < at}", "{}"),
        Break("the end of a replay is beyond a shorter log", "StreamReader._compare_replay", "lost.back.items()", "()", ("tests/connector/source/test_source_restored.py",)),
        Break("the beginning of a replay may be gone", "StreamReader._compare_replay", "plan.losses(first, latest.offsets, earliest=earliest).early", "plan.losses(first, latest.offsets, earliest=earliest).early and {}"),
    ),
    *mutants_of(
        PLAN,
        Break("the limit is passed", "share", "end[tp] - size + max(size * most // total, 1)", "end[tp]"),
        Break("small partitions starve", "share", "max(size * most // total, 1)", "size * most // total"),
        Break("what lies behind counts", "share", "max(end[tp] - start.get(tp, end[tp]), 0)", "end[tp] - start.get(tp, end[tp])"),
        Break("partitions without a start are read from 0", "share", "start.get(tp, end[tp])", "start.get(tp, 0)"),
        Break("ranges that are turned", "ranges", "end[tp] > start[tp]", "end[tp] != start[tp]"),
        Break("ranges do not know their topic's id", "ranges", "Range(*tp, start[tp], end[tp], known.get(tp[0]))", "Range(*tp, start[tp], end[tp])"),
        Break("pieces overlap", "_pieces", "a", "max(a - 1, whole.start)"),
        Break("pieces leave gaps", "_pieces", "b", "max(b - 1, a)"),
        Break("more pieces than offsets", "_pieces", "min(max(count, 1), whole.size)", "max(count, 1)"),
        Break("maxRecordsPerPartition does not count", "split", "-(-r.size // max_records) if max_records else 1", "1"),
        Break("maxRecordsPerPartition rounds down", "split", "-(-r.size // max_records)", "r.size // max_records"),
        Break("minPartitions does not count", "split", "min_partitions is None or len(pieces) >= min_partitions", "True"),
        Break("what is gone is no loss", "losses", "tuple(sorted((tp for tp in start if tp not in latest and tp[0] not in changed)))", "()"),
        Break("what was cut is no loss", "losses", "tp in latest and latest[tp] < start[tp]", "False"),
        Break("a quiet log is cut", "losses", "latest[tp] < start[tp]", "latest[tp] <= start[tp]"),
        Break("what was deleted is no loss", "losses", "found[0] < found[1] and tp[0] not in changed", "False"),
        Break("what begins where it stands is deleted", "losses", "found[0] < found[1]", "found[0] <= found[1]"),
        Break("created again is the same", "recreated", "t in now and then[t] != now[t]", "False"),
        Break("gone is created again", "recreated", "t in now and then[t] != now[t]", "then[t] != now.get(t, '')"),
        Break("losses are none", "Losses.__bool__", "self.gone or self.back or self.recreated or self.early or self.parted or self.dropped", "self.gone or self.back or self.recreated or self.parted or self.dropped"),
        Break("topics created again are no loss", "Losses.__bool__", "self.gone or self.back or self.recreated or self.early or self.parted or self.dropped", "self.gone or self.back or self.early or self.parted or self.dropped"),
        Break("what is not named is no loss", "Losses.__bool__", "self.gone or self.back or self.recreated or self.early or self.parted or self.dropped", "self.gone or self.back or self.recreated or self.early or self.parted"),
        Break("offsets of topics created again are kept", "without", "tp[0] not in topics", "True"),
    ),
    *mutants_of(
        SMALL,
        Break("no batch is too large", "SmallBatches._may_be_small", "0 < sum((one.size for one in ranges)) <= self._most()", "0 < sum((one.size for one in ranges))"),
        Break("another PySpark", "SmallBatches._may_be_small", "0 < sum((one.size for one in ranges)) <= self._most() and is_offered()", "0 < sum((one.size for one in ranges)) <= self._most()"),
        Break("nothing is read ahead", "SmallBatches.begin", "self._submit(ranges) if self._may_be_small(ranges) else None", "None"),
        Break("whatever was read ahead", "SmallBatches.read", "ahead is None or ahead.ranges != ranges", "ahead is None"),
        Break("read ahead once, given twice", "SmallBatches.read", "ahead, self._ahead = (self._ahead, None)", "ahead = self._ahead"),
        Break(
            "a copy takes the thread along",
            "SmallBatches",
            'def __reduce__(self) -> tuple[Any, ...]:\n    """A copy starts empty: rows stay in the process that read them."""\n    return (SmallBatches, (self._options,))',
            'def _reduce(self) -> tuple[Any, ...]:\n    """A copy starts empty: rows stay in the process that read them."""\n    return (SmallBatches, (self._options,))',
        ),
        Break("its connections stay", "SmallBatches.close", "self._thread.submit(close_shared, self._options.client)", "pass"),
        Break("tasks that are asked for", "SmallBatches._most", "asked or options.client.client_rack", "options.client.client_rack"),
        Break("replicas near by", "SmallBatches._most", "asked or options.client.client_rack", "asked"),
        Break("what was too heavy is tried again", "SmallBatches._read", "_HEAVIER * options.small_bytes / size", "0.0"),
        Break("what was too heavy is never tried again", "SmallBatches._read", "self._weight *= _FADES", "pass"),
    ),
    *mutants_of(SMALL, Break("a reader stays what it was for a moment", "take_back", "reader.__class__ = type(reader).__bases__[0]", "pass"), Break("any PySpark takes rows", "is_offered", "_simple() is not None", "True")),
    *mutants_of(
        SMALL,
        Break("open and aborted rows", "_Batch._body", "int(self._committed)", "0"),
        Break("aborted rows", "_Batch._take", "aborted if self._committed else None", "None"),
        Break("rows behind the end", "_Batch._take", "clip(decoded, position, end)", "decoded"),
        Break("an error is no rows", "_Batch._take", "place not in self._ranges or part['error_code']", "False"),
        Break("more bytes than are small", "_Batch._take", "self._left < 0", "False"),
        Break("a part is enough", "_Batch.read", "not missing", "True"),
    ),
    *mutants_of(
        (f"{HERE}test_offsets.py", f"{HERE}checkpoint/test_crosscheck.py", f"{HERE}source/test_source_deleted.py"),
        Break("an end may be a line", "parse_bound", "_entries(nested) if option == 'startingOffsets' else {}", "_entries(nested)"),
        Break("entries are topics", "parse_bound", "_entries(nested)", "{}"),
        Break("epochs of earliest", "_as_stored", "found.get(tp, EARLIEST) >= 0", "True"),
        Break("entries that cannot be read", "_as_stored", "ValueError", "ZeroDivisionError"),
        Break("texts differ by their order", "to_json", "sorted(offsets.items())", "offsets.items()"),
        Break("topics' ids are not stored", "to_json", "known.items()", "()"),
        Break("the cluster is not stored", "to_json", "cluster is None", "True"),
        Break("ids of topics that are not read", "to_json", "{topic: ids[topic] for topic in nested if ids is not None and topic in ids}", "{topic: ids[topic] for topic in ids or {}}"),
        Break("names are not quoted", "to_json", "quote(name, safe='')", "name"),
        Break("names stay quoted", "taken_from_json", "TakenFrom(unquote(sink), unquote(group))", "TakenFrom(sink, group)"),
        Break("ids are not read", "ids_from_json", "key.startswith(f'{_ID}:')", "False"),
        Break("the cluster is not read", "cluster_from_json", "key.startswith(f'{_CLUSTER}:')", "False"),
        Break("endingOffsets may be committed", "parse_bound", "START_WORDS if option == 'startingOffsets' else WORDS", "START_WORDS"),
        Break("a partition given twice", "_no_doubles", "if doubled:\n    raise ValueError(f\"{', '.join(sorted(doubled))} given twice\")", "if False:\n    raise ValueError(f\"{', '.join(sorted(doubled))} given twice\")"),
        Break("offsets below -2", "_parse_nested", "not isinstance(number, int) or isinstance(number, bool) or number < least", "not isinstance(number, int) or isinstance(number, bool)"),
        Break("truth is an offset", "_parse_nested", "isinstance(number, bool)", "False"),
        Break("partitions below 0 are assigned", "_parse_list", "isinstance(p, int) and (not isinstance(p, bool)) and (p >= 0)", "isinstance(p, int) and (not isinstance(p, bool))"),
        Break("an empty assignment", "_parse_list", "isinstance(parts, list) and bool(parts)", "isinstance(parts, list)"),
    ),
    *mutants_of(
        ("tests/client/test_cluster.py", "tests/client/test_transaction_lists.py", *READER, f"{HERE}source/test_source_restored.py"),
        Break("the lowest end of several sources is anyone's", "SourceTopics._check_one_place", "not apart", "True"),
        Break("a checkpoint's line is not compared", "SourceTopics._as_stored", "self.options.stored if option == 'startingOffsets' else None", "None"),
        Break("a line of another cluster", "SourceTopics._as_stored", "check_cluster(stored.cluster, self.cluster_id, self.options.moved_to)", "check_cluster(None, None, self.options.moved_to)"),
        Break("a line of a topic created again", "SourceTopics._as_stored", "plan.recreated(stored.ids, self.ids)", "{}"),
        Break("a topic created again begins where the line stood", "SourceTopics._as_stored", "self.ends([tp for tp in wanted if tp[0] in recreated], EARLIEST)", "{}"),
        Break("a line of a log that parted", "SourceTopics._as_stored", "{tp: epoch for tp, epoch in stored.epochs.items() if tp in same}", "{tp: epoch for tp, epoch in ()}"),
        Break("partitions newer than the line are left out", "SourceTopics.resolve", "{tp: known.get(tp, EARLIEST) for tp in partitions}", "{tp: known[tp] for tp in partitions if tp in known}"),
        Break("topics' ids are not noted", "SourceTopics.partitions", "info.topic_id is not None", "False"),
        Break("the cluster is not noted", "SourceTopics.partitions", "self.cluster_id = self.cluster.cluster_id", "pass"),
        Break("an end that lies behind is believed", "SourceTopics.latest", "not left or all((found.get(tp, -1) >= at for tp, at in waited.items()))", "True"),
        Break("a partition that is not told of is gone", "SourceTopics.latest", "-1", "at"),
        Break("beginnings are ends", "SourceTopics.beginnings", "EARLIEST", "LATEST"),
        Break(
            "partitions left out are not read",
            "SourceTopics._check_names",
            "if missing:\n    names = ', '.join((f'{t}-{p}' for t, p in missing))\n    raise OptionError(f'{option} leaves out {names}: name every partition (-1 is latest, -2 earliest)')",
            "if False:\n    names = ', '.join((f'{t}-{p}' for t, p in missing))\n    raise OptionError(f'{option} leaves out {names}: name every partition (-1 is latest, -2 earliest)')",
        ),
        Break(
            "partitions that are not read are taken",
            "SourceTopics._check_names",
            "if extra:\n    names = ', '.join((f'{t}-{p}' for t, p in extra))\n    raise OptionError(f'{option} names {names}, which is not among the partitions read: leave it out')",
            "if False:\n    names = ', '.join((f'{t}-{p}' for t, p in extra))\n    raise OptionError(f'{option} names {names}, which is not among the partitions read: leave it out')",
        ),
        Break(
            "offsets outside of the log are taken",
            "SourceTopics._within",
            "if odd:\n    said = '; '.join((f'{t}-{p} has {first[t, p]} to {last[t, p]}, not {wanted[t, p]}' for t, p in odd))\n    report_loss(self.options.fail_on_data_loss, f'{option} lies outside of the log: {said}')",
            "if False:\n    said = '; '.join((f'{t}-{p} has {first[t, p]} to {last[t, p]}, not {wanted[t, p]}' for t, p in odd))\n    report_loss(self.options.fail_on_data_loss, f'{option} lies outside of the log: {said}')",
        ),
        Break("offsets outside of the log are not moved", "SourceTopics._within", "min(max(at, first[tp]), last[tp])", "at"),
        Break(
            "a group without offsets begins at the start",
            "SourceTopics._committed",
            "if not at:\n"
            "    raise OptionError(f'startingOffsets=committed: group {group} has committed no offset of these partitions; check kafka.group.id, or give startingOffsets as earliest, latest or offsets. To take the place of another query, start that one once, to finish its last batch; then give the last line of the newest file in its offsets/: it is compared with the log')",
            "if False:\n"
            "    raise OptionError(f'startingOffsets=committed: group {group} has committed no offset of these partitions; check kafka.group.id, or give startingOffsets as earliest, latest or offsets. To take the place of another query, start that one once, to finish its last batch; then give the last line of the newest file in its offsets/: it is compared with the log')",
        ),
        Break("new partitions of a group begin at their end", "SourceTopics._committed", "EARLIEST", "LATEST"),
        Break(
            "a decision on its way is not waited for", "SourceTopics._committed", "group_offsets.fetch_with_epochs(self.cluster, group, partitions, least_ms=PENDING_MS)", "group_offsets.fetch_with_epochs(self.cluster, group, partitions)"
        ),
        Break("what notes tell is not said", "SourceTopics._committed", "logger.warning(warning)", "pass"),
        Break("no record is as young and nobody says so", "SourceTopics._at", "none and (not bound.none_is_latest)", "False"),
        Break("a pattern matches a part", "SourceTopics._matching", "pattern.fullmatch(t.name)", "pattern.match(t.name)"),
        Break("topics that cannot be told of are gone", "SourceTopics._matching.look", "check(code, f'Metadata of {name}')", "pass"),
        Break("internal topics are read", "SourceTopics._matching", "not t.internal and pattern.fullmatch(t.name)", "pattern.fullmatch(t.name)"),
    ),
    *mutants_of(
        ROUTING,
        Break("columns of any type", "check_sink_schema", "name in types", "False"),
        Break("no value", "check_sink_schema", "'value' not in types", "False"),
        Break("bad rows are written", "check_sink_schema", "dead is None and 'deadletter' in types", "False"),
        Break("nowhere to go", "check_sink_schema", "topic is None and 'topic' not in types", "False"),
        Break("rows of a partition change their order", "_sorted", "stable_order(place)", "np.argsort(-place, kind='stable')[::-1]"),
        Break("destinations run together", "_sorted", "int(partition_of.max()) + 1", "int(partition_of.max())"),
        Break("topics run together", "_sorted", "topic_of * (int(partition_of.max()) + 1) + partition_of", "partition_of"),
        Break("the column beats the option", "Router._topics", "self._topic is not None", "self._topic is not None and rows.schema.get_field_index('topic') < 0"),
        Break(
            "rows without a topic",
            "Router._topics",
            "if column.null_count:\n    raise SchemaError(f\"{column.null_count} of {len(rows)} rows have null in the column 'topic', and the option topic is not given: fill the column or give the option\")",
            "if False:\n    raise SchemaError(f\"{column.null_count} of {len(rows)} rows have null in the column 'topic', and the option topic is not given: fill the column or give the option\")",
        ),
        Break("the key beats the column", "Router._partitions", "given is None and key is not None and (len(topics) == 1) and (not key.null_count)", "key is not None and len(topics) == 1 and (not key.null_count)"),
        Break("null keys are hashed", "Router._partitions", "given is None and key is not None and (len(topics) == 1) and (not key.null_count)", "given is None and key is not None and (len(topics) == 1)"),
        Break(
            "partitions that do not exist",
            "Router._check_given",
            "if len(wrong):\n    topic = int(topic_of[wrong[0]])\n    raise SchemaError(f\"{len(wrong)} rows name a partition that does not exist, first {found[wrong[0]]} of topic {topics[topic]!r}, which has {counts[topic]}: correct the column 'partition', or leave it null\")",
            "if False:\n    topic = int(topic_of[wrong[0]])\n    raise SchemaError(f\"{len(wrong)} rows name a partition that does not exist, first {found[wrong[0]]} of topic {topics[topic]!r}, which has {counts[topic]}: correct the column 'partition', or leave it null\")",
        ),
        Break("partitions below 0", "Router._check_given", "(found < 0) | (found >= counts[topic_of])", "found >= counts[topic_of]"),
        Break("the partition behind the last", "Router._check_given", "found >= counts[topic_of]", "found > counts[topic_of]"),
        Break("one turn for all", "Router._partitions", "self._turn += 1", "pass"),
        Break("all topics have the first one's partitions", "Router._partitions", "counts[number]", "counts[0]"),
        Break("keys of rows that have a partition", "Router._partitions", "(topic_of == number) & (found == NO_PARTITION)", "topic_of == number"),
        Break("keys of other rows", "Router._partitions", "key if len(mine) == len(rows) else _take(key, mine)", "key.slice(0, len(mine))"),
        Break("large batches as they are", "Router.route", "columns if not begins else [_take(column, part) for column in columns]", "columns"),
        Break("the first row's place for all", "Router.route", "row += batch.count", "pass"),
        Break("headers are left out", "Router.route", "'headers'", "'no headers'"),
    ),
    *mutants_of(
        TALLY,
        Break("rows are not counted", "Tally.add", "self.rows += len(rows)", "pass"),
        Break("order counts", "Tally.add", "self.checksum + int((_hashes(rows) >> np.uint64(32)).sum())", "self.checksum * 31 + int((_hashes(rows) >> np.uint64(32)).sum())"),
        Break("topics do not count", "_BYTES", "('key', 'value', 'topic')", "('key', 'value')"),
        Break("keys do not count", "_BYTES", "('key', 'value', 'topic')", "('value', 'topic')"),
        Break("partitions do not count", "_hashes", "partition is not None", "False"),
        Break("headers do not count", "_hashes", "headers is None", "True"),
        Break("the high bits only of the last", "Tally.add", "2 ** 32", "2 ** 4"),
        Break("null headers differ from none", "_of_headers", "pc.fill_null(pc.list_value_length(column), 0)", "pc.fill_null(pc.list_value_length(column), 1)"),
    ),
]
