"""Rules of the source, broken; and where rows go, and what they are."""

from tests.mutants.mutant import Break, Mutant, mutants_of

HERE = "tests/connector/"
SMALL = (f"{HERE}source/test_small_batches.py",)
READER = (
    f"{HERE}source/test_read_range.py",
    f"{HERE}run/test_trap_defences_outside.py",
    f"{HERE}source/test_source_stream.py",
    f"{HERE}source/test_first_batch.py",
    f"{HERE}source/test_untold.py",
    f"{HERE}source/test_source_anew.py",
    f"{HERE}source/test_source_times.py",
    f"{HERE}checkpoint/test_crosscheck_broker.py",
)
PLAN = (
    f"{HERE}offsets/test_plan.py",
    f"{HERE}checkpoint/test_crosscheck.py",
    f"{HERE}source/test_source_anew.py",
    f"{HERE}source/test_source_stream.py",
)
LEFT = (f"{HERE}source/test_source_left.py",)
PUSHED = (f"{HERE}source/test_pushed_filters.py",)
PUSHED_READ = (f"{HERE}source/test_pushdown_broker.py",)
ROUTING = (f"{HERE}sink/test_writer_routing.py",)
TALLY = (f"{HERE}sink/test_tally.py",)

MUTANTS: list[Mutant] = [
    *mutants_of(
        "connector/offsets/offsets.py",
        LEFT,
        Break("what a query left is forgotten with the next batch", ", *left.names()]", "]"),
        Break(
            "a topic that was gone is the same one", "if t in left.gone and ids.get(t, n) != n}", "if False}"
        ),
        Break("what is read again stays left", "if tp not in read}", "}"),
    ),
    *mutants_of(
        "connector/source/reader.py",
        LEFT,
        Break("a topic that is named again is new", "position = position.back_in(end, ids)", "pass"),
        Break(
            "a batch that runs again takes it for new",
            "position = position.back_in(planned.offsets, planned.ids)",
            "pass",
        ),
        Break("what leaves is not kept", "_replace(left=left)\n        end", "_replace()\n        end"),
    ),
    *mutants_of(
        "connector/source/pushed_ranges.py",
        PUSHED,
        Break(
            "that there is no such time is believed alone",
            "older = {tp: end[tp] for tp, at in times.items() if 0 <= at < since}",
            "older = {tp: end[tp] for tp in none}",
        ),
        Break("brokers' clocks are never apart", "until + CLOCKS_APART_MS", "until"),
        Break(
            "a producer's time is taken for a broker's",
            "return found.get(place) == _LOG_APPEND_TIME",
            "return True",
        ),
        Break(
            "producers' times are taken for rising",
            "if source.options.times_rise:",
            "if True:",
        ),
        Break("a word for an end is sent as a time", "since is not None and since > 0", "since is not None"),
        Break(
            "a range begins before its options say",
            "max(at, begins.get(tp, at))",
            "begins.get(tp, at)",
            PUSHED_READ,
        ),
        Break("what no time can pass is read", " or pushed.times.is_empty", ""),
    ),
    *mutants_of(
        "connector/source/pushed_filters.py",
        PUSHED,
        Break("a time is rounded down", "-(-at // 1000)", "at // 1000"),
        Break(
            "null is false, and not null true",
            "return None if inner is None else not inner",
            "return not inner",
        ),
        Break(
            "a list with null finds nothing else", "else None if None in one.value else False", "else False"
        ),
        Break("a list is all between its ends", ", known[-1] - known[0] + 1 == len(known)", ", True"),
        Break("times are exact", "span in (Span(), NOTHING)", "True"),
        Break(
            "equal is less",
            "LessThanOrEqual: lambda at: Span(None, at + 1)",
            "LessThanOrEqual: lambda at: Span(None, at)",
        ),
    ),
    *mutants_of(
        "connector/source/read_range.py",
        READER,
        Break(
            "the position is not moved on", "                position = records.offset[-1].as_py() + 1\n", ""
        ),
        Break(
            "what was read is told as lost",
            "position = records.offset[-1].as_py() + 1",
            "position = records.offset[-1].as_py()",
        ),
        Break(
            "open transactions are read",
            "committed=options.committed,\n                topic_id",
            "committed=False,\n                topic_id",
        ),
        Break("another topic of the name is read", "                topic_id=task.topic_id,\n", ""),
        Break(
            "offsets that are gone are no loss",
            "        except OffsetsGone as error:\n            report_loss(options.fail_on_data_loss, str(error))\n",
            "        except OffsetsGone:\n",
        ),
        Break(
            "a topic created again is no loss",
            "        except TopicRecreated as error:\n            report_loss(options.fail_on_data_loss, str(error))\n",
            "        except TopicRecreated:\n",
        ),
        Break(
            "after a loss nothing is read",
            "return first if first > position else task.end",
            "return task.end",
        ),
        Break(
            "after a loss it begins before",
            "return first if first > position else task.end",
            "return first",
            hangs=True,
        ),
    ),
    *mutants_of(
        "connector/offsets/position_changes.py",
        READER,
        Break(
            "whose they are is new data",
            "(position.taken, position.began) if",
            "(frozenset(), position.began) if",
        ),
        Break(
            "where it began is said for ever",
            "(position.taken, position.began) if stands",
            "(position.taken, position.began) if True",
        ),
        Break(
            "where it began is new data",
            "(position.taken, position.began) if stands",
            "(position.taken, None) if stands",
        ),
    ),
    *mutants_of(
        "connector/source/reader.py",
        READER,
        Break(
            "it is not said whose offsets they are",
            "(taken=self._log.taken, shadow=cut, left=left)",
            "(shadow=cut, left=left)",
        ),
        Break("a range that is turned is empty", "        if turned:\n", "        if False:\n"),
        Break("an end tells of another's beginning", " and start == self._began:", ":"),
        Break("a whole run's end is not compared", "if _place(wanted) != _place(end):", "if False:"),
        Break(
            "what was compared for a new query counts",
            "self._began, self._first, self._compared = {}, None, False, False",
            "self._began, self._first, self._compared = {}, None, False, True",
        ),
        Break(
            "where the query stands is not heard",
            "        elif start == end:\n            self._stands = start\n",
            "",
        ),
        Break("an end is not the next start", "        self._stands = end\n", ""),
        Break("a first end is for good", "            self._free_end()\n", ""),
        Break(
            "where it began is not stored",
            "        if first and self._reads_nothing_at_first():",
            "        if False:",
        ),
        Break(
            "a query that takes over begins with an empty batch",
            "self._moved() and self.options.taken_over is None",
            "self._moved()",
        ),
        Break(
            "a query that may begin later reads at once",
            "self._moved() and self.options.taken_over is None",
            "False",
        ),
        Break(
            "a first end with rows does not say whose offsets they are",
            "(began=begin, taken=position.taken)",
            "(began=begin)",
        ),
        Break(
            "a first end does not say where it began",
            "until._replace(began=begin, taken=position.taken) if first else",
            "",
        ),
        Break(
            "every end says where it began",
            "until._replace(began=begin, taken=position.taken) if first else",
            "until._replace(began=begin, taken=position.taken) if True else",
        ),
        Break(
            "an empty first batch does not say where it is",
            "(*position._replace(began=position.offsets))",
            "(*position)",
        ),
        Break(
            "a first batch begins where startingOffsets says now",
            "        if planned.began is not None and position.began is None and start == self._began:\n",
            "        if False:\n",
        ),
        Break(
            "an end that did not move is read again",
            "        if planned.began is not None and position.began is None and start == self._began:\n",
            "        if planned.began is not None:\n",
        ),
        Break(
            "asked for its beginning twice it begins twice",
            "        if self._began is None:\n",
            "        if True:\n",
        ),
        Break(
            "the log's cluster is not compared",
            "        position = self._on_this_cluster(position, self._log.met_cluster())\n",
            "",
        ),
        Break(
            "losses are not looked for",
            "            report_loss(self.options.fail_on_data_loss, str(lost))\n        return lost",
            "            pass\n        return lost",
        ),
        Break(
            "the log's beginning is never compared",
            "        if self._compared:\n            return {}\n        self._compared = True",
            "        if True:\n            return {}\n        self._compared = True",
        ),
        Break("the log's beginning is asked for each time", "        self._compared = True\n", ""),
        Break("available now goes on for ever", "if self._target is None:", "if True:"),
        Break(
            "the limit does not count",
            "        if isinstance(limit, ReadMaxRows):\n            until",
            "        if False:\n            until",
        ),
        Break(
            "a replay is not compared",
            "if not self._compared and position.offsets != planned.offsets:",
            "if False:",
        ),
        Break(
            "a batch that goes back is no loss",
            "        if lost:\n            report_loss(self.options.fail_on_data_loss, str(lost))\n        tasks = _tasks(",
            "        tasks = _tasks(",
        ),
        Break(
            "a first batch of another source begins where latest is now",
            "        return start == self._began and bool(self._initial) and self._moved()",
            "        return False",
        ),
        Break(
            "no first batch of another source can be read",
            "        return start == self._began and bool(self._initial) and self._moved()",
            "        return start == self._began and bool(self._initial)",
        ),
        Break(
            "new partitions begin at their end",
            "found = self._log.ends(unknown, EARLIEST)",
            "found = self._log.ends(unknown, LATEST)",
        ),
        Break(
            "what new partitions have lost is not told", "            if late:\n", "            if False:\n"
        ),
        Break("new partitions are looked for each time", "self._begins.update(", "{}.update("),
        Break(
            "topics created again are read on",
            "known = plan.without(start[0], plan.recreated(start[1], end[1]))",
            "known = start[0]",
        ),
        Break("a target before the beginning", "max(at, self._initial.get(tp, at))", "at"),
        Break("fixed offsets move", "starting in (LATEST, COMMITTED)", "True"),
        Break("the group's offsets do not move", "starting in (LATEST, COMMITTED)", "starting == LATEST"),
        Break("minOffsetsPerTrigger waits for ever", ">= delay_ms:", ">= 1e18:"),
        Break("minOffsetsPerTrigger does not wait", "for tp in end) < least", "for tp in end) < 0"),
        Break(
            "a new query waits",
            "or self._last_batch is None:\n            return False",
            ":\n            return False\n        if self._last_batch is None:\n            return True",
        ),
        Break(
            "the end of a replay may be gone",
            "read = {tp: at for tp, at in until.offsets.items() if begin.offsets.get(tp, 0) < at}",
            "read = {}",
        ),
        Break("the beginning of a replay may be gone", ".early\n", ".early and {}\n"),
    ),
    *mutants_of(
        "connector/offsets/plan.py",
        PLAN,
        Break(
            "the limit is passed", "end[tp] - size + max(size * most // total, 1) if size", "end[tp] if size"
        ),
        Break(
            "small partitions starve", "max(size * most // total, 1) if size", "size * most // total if size"
        ),
        Break(
            "what lies behind counts",
            "max(end[tp] - start.get(tp, end[tp]), 0)",
            "end[tp] - start.get(tp, end[tp])",
        ),
        Break("partitions without a start are read from 0", "start.get(tp, end[tp])", "start.get(tp, 0)"),
        Break("ranges that are turned", "if end[tp] > start[tp]]", "if end[tp] != start[tp]]"),
        Break(
            "ranges do not know their topic's id",
            "start[tp], end[tp], known.get(tp[0]))",
            "start[tp], end[tp])",
        ),
        Break(
            "pieces overlap",
            "replace(whole, start=a, end=b)",
            "replace(whole, start=max(a - 1, whole.start), end=b)",
        ),
        Break(
            "pieces leave gaps",
            "replace(whole, start=a, end=b)",
            "replace(whole, start=a, end=max(b - 1, a))",
        ),
        Break("more pieces than offsets", "count = min(max(count, 1), whole.size)", "count = max(count, 1)"),
        Break(
            "maxRecordsPerPartition does not count", "-(-r.size // max_records) if max_records else 1", "1"
        ),
        Break(
            "maxRecordsPerPartition rounds down",
            "-(-r.size // max_records) if max_records else 1",
            "r.size // max_records if max_records else 1",
        ),
        Break(
            "minPartitions does not count",
            "if min_partitions is None or len(pieces) >= min_partitions:",
            "if True:",
        ),
        Break(
            "what is gone is no loss",
            "gone = tuple(sorted(tp for tp in start if tp not in latest and tp[0] not in changed))",
            "gone = ()",
        ),
        Break("what was cut is no loss", "if tp in latest and latest[tp] < start[tp]}", "if False}"),
        Break("a quiet log is cut", "latest[tp] < start[tp]}", "latest[tp] <= start[tp]}"),
        Break("what was deleted is no loss", "if found[0] < found[1] and tp[0] not in changed}", "if False}"),
        Break(
            "what begins where it stands is deleted",
            "if found[0] < found[1] and",
            "if found[0] <= found[1] and",
        ),
        Break("created again is the same", "if t in now and then[t] != now[t]}", "if False}"),
        Break("gone is created again", "if t in now and then[t] != now[t]}", "if then[t] != now.get(t, '')}"),
        Break(
            "losses are none",
            "self.recreated or self.early or self.parted or",
            "self.recreated or self.parted or",
        ),
        Break(
            "topics created again are no loss",
            "self.recreated or self.early or self.parted or",
            "self.early or self.parted or",
        ),
        Break("what is not named is no loss", " or self.parted or self.dropped)", " or self.parted)"),
        Break("offsets of topics created again are kept", "if tp[0] not in topics}", "if True}"),
    ),
    *mutants_of(
        "connector/source/small_batches.py",
        SMALL,
        Break("no batch is too large", " <= self._most() and is_offered()", " and is_offered()"),
        Break("another PySpark", " <= self._most() and is_offered()", " <= self._most()"),
        Break(
            "nothing is read ahead", "self._submit(ranges) if self._may_be_small(ranges) else None", "None"
        ),
        Break("whatever was read ahead", "if ahead is None or ahead.ranges != ranges:", "if ahead is None:"),
        Break(
            "read ahead once, given twice", "ahead, self._ahead = self._ahead, None", "ahead = self._ahead"
        ),
        Break("a copy takes the thread along", "    def __reduce__(self)", "    def _reduce(self)"),
        Break(
            "its connections stay",
            "            self._thread.submit(close_shared, self._options.client)\n",
            "",
        ),
        Break("tasks that are asked for", "return 0 if asked or options", "return 0 if options"),
        Break("replicas near by", "asked or options.client.client_rack else", "asked else"),
        Break("what was too heavy is tried again", "= _HEAVIER * options.small_bytes / size", "= 0.0"),
        Break("what was too heavy is never tried again", "        self._weight *= _FADES\n", ""),
    ),
    *mutants_of(
        "connector/source/rows_in_plan.py",
        SMALL,
        Break(
            "a reader stays what it was for a moment",
            "    reader.__class__ = type(reader).__bases__[0]\n",
            "",
        ),
        Break("any PySpark takes rows", "    return _simple() is not None", "    return True"),
    ),
    *mutants_of(
        "connector/client/records/fetch_small.py",
        SMALL,
        Break("open and aborted rows", 'isolation_level": int(self._committed)', 'isolation_level": 0'),
        Break("aborted rows", "aborted if self._committed else None", "None"),
        Break("rows behind the end", "clip(decoded, position, end)", "decoded"),
        Break("an error is no rows", 'if place not in self._ranges or part["error_code"]:', "if False:"),
        Break("more bytes than are small", "        if self._left < 0:\n", "        if False:\n"),
        Break("a part is enough", "            if not missing:\n", "            if True:\n"),
    ),
    *mutants_of(
        "connector/offsets/offsets.py",
        (
            f"{HERE}offsets/test_offsets.py",
            f"{HERE}checkpoint/test_crosscheck.py",
            f"{HERE}source/test_source_anew.py",
        ),
        Break(
            "an end may be a line",
            'entries = _entries(nested) if option == "startingOffsets" else {}',
            "entries = _entries(nested)",
        ),
        Break("entries are topics", "    entries = _entries(nested) if", "    entries = {} if"),
        Break("epochs of earliest", "if found.get(tp, EARLIEST) >= 0}", "if True}"),
        Break(
            "entries that cannot be read",
            "    except ValueError as error:\n        raise OptionError(f\"{option}: {', '.join",
            "    except ZeroDivisionError as error:\n        raise OptionError(f\"{option}: {', '.join",
        ),
        Break(
            "texts differ by their order",
            "in sorted(offsets.items()):\n        nested",
            "in offsets.items():\n        nested",
        ),
        Break(
            "topics' ids are not stored", "for topic, number in known.items()]", "for topic, number in ()]"
        ),
        Break("the cluster is not stored", "[] if cluster is None else", "[] if True else"),
        Break(
            "ids of topics that are not read",
            "for topic in nested if ids is not None and topic in ids}",
            "for topic in ids or {}}",
        ),
        Break(
            "names are not quoted",
            'quote(name, safe="") for name in one',
            "name for name in one",
        ),
        Break("names stay quoted", "TakenFrom(unquote(sink), unquote(group))", "TakenFrom(sink, group)"),
        Break("ids are not read", 'if key.startswith(f"{_ID}:")]', "if False]"),
        Break("the cluster is not read", 'if key.startswith(f"{_CLUSTER}:")]', "if False]"),
        Break(
            "endingOffsets may be committed",
            'START_WORDS if option == "startingOffsets" else WORDS',
            "START_WORDS",
        ),
        Break("a partition given twice", "    if doubled:\n", "    if False:\n"),
        Break("offsets below -2", "or number < least:", ":"),
        Break("truth is an offset", "isinstance(number, bool) or", "False or"),
        Break("partitions below 0 are assigned", "and p >= 0 for p in parts", "for p in parts"),
        Break(
            "an empty assignment",
            "wanted = isinstance(parts, list) and bool(parts)",
            "wanted = isinstance(parts, list)",
        ),
    ),
    *mutants_of(
        "connector/source/source_topics.py",
        (
            f"{HERE}client/test_pattern_topics.py",
            f"{HERE}client/test_group_starts.py",
            *READER,
            f"{HERE}source/test_source_restored.py",
        ),
        Break(
            "the lowest end of several sources is anyone's",
            "        if not apart:\n            return\n        names =",
            "        if True:\n            return\n        names =",
        ),
        Break(
            "a checkpoint's line is not compared",
            'stored = self.options.stored if option == "startingOffsets" else None',
            "stored = None",
        ),
        Break(
            "a line of another cluster",
            "check_cluster(stored.cluster, self.cluster_id,",
            "check_cluster(None, None,",
        ),
        Break(
            "a line of a topic created again",
            "recreated = plan.recreated(stored.ids, self.ids)",
            "recreated = {}",
        ),
        Break(
            "a topic created again begins where the line stood",
            "self.ends([tp for tp in wanted if tp[0] in recreated], EARLIEST)",
            "{}",
        ),
        Break(
            "a line of a log that parted",
            "for tp, epoch in stored.epochs.items() if tp in same}",
            "for tp, epoch in ()}",
        ),
        Break(
            "partitions newer than the line are left out",
            "{tp: known.get(tp, EARLIEST) for tp in partitions}  #",
            "{tp: known[tp] for tp in partitions if tp in known}  #",
        ),
        Break("topics' ids are not noted", "if info.topic_id is not None}", "if False}"),
        Break("the cluster is not noted", "        self.cluster_id = self.cluster.cluster_id\n", ""),
        Break(
            "an end that lies behind is believed",
            "if not left or all(found.get(tp, -1) >= at for tp, at in waited.items()):",
            "if True:",
        ),
        Break(
            "a partition that is not told of is gone", "found.get(tp, -1) >= at", "found.get(tp, at) >= at"
        ),
        Break(
            "beginnings are ends",
            "self.cluster, dict.fromkeys(partitions, EARLIEST)",
            "self.cluster, dict.fromkeys(partitions, LATEST)",
        ),
        Break("partitions left out are not read", "        if missing:\n", "        if False:\n"),
        Break("partitions that are not read are taken", "        if extra:\n", "        if False:\n"),
        Break("offsets outside of the log are taken", "        if odd:\n", "        if False:\n"),
        Break("offsets outside of the log are not moved", "min(max(at, first[tp]), last[tp])", "at"),
        Break(
            "a group without offsets begins at the start",
            "        if not at:\n            raise",
            "        if False:\n            raise",
        ),
        Break(
            "new partitions of a group begin at their end",
            "**self.ends(new, EARLIEST), **self._not_parted",
            "**self.ends(new, LATEST), **self._not_parted",
        ),
        Break("a decision on its way is not waited for", ", least_ms=PENDING_MS", ""),
        Break(
            "what notes tell is not said",
            "            log.warning(warning)\n        self.taken = ",
            "            pass\n        self.taken = ",
        ),
        Break(
            "no record is as young and nobody says so", "if none and not bound.none_is_latest:", "if False:"
        ),
        Break("a pattern matches a part", "pattern.fullmatch(t.name)]", "pattern.match(t.name)]"),
        Break(
            "topics that cannot be told of are gone",
            '                    check(code, f"Metadata of {name}")  #',
            "                    pass  #",
        ),
        Break("internal topics are read", "if not t.internal and", "if"),
    ),
    *mutants_of(
        "connector/spark/columns.py",
        ROUTING,
        Break("columns of any type", "if name in types and not any(", "if False and not any("),
        Break("no value", 'if "value" not in types:', "if False:"),
        Break("nowhere to go", 'if topic is None and "topic" not in types:', "if False:"),
    ),
    *mutants_of(
        "connector/sink/routing.py",
        ROUTING,
        Break(
            "rows of a partition change their order",
            "order = stable_order(place)",
            "order = np.argsort(-place, kind='stable')[::-1]",
        ),
        Break(
            "destinations run together",
            "place = topic_of * (int(partition_of.max()) + 1) + partition_of",
            "place = topic_of * int(partition_of.max()) + partition_of",
        ),
        Break(
            "topics run together",
            "place = topic_of * (int(partition_of.max()) + 1) + partition_of",
            "place = partition_of",
        ),
        Break(
            "the column beats the option",
            "if self._topic is not None:",
            "if self._topic is not None and rows.schema.get_field_index('topic') < 0:",
        ),
        Break("rows without a topic", "if column.null_count:", "if False:"),
        Break(
            "the key beats the column",
            "if given is None and key is not None and len(topics) == 1",
            "if key is not None and len(topics) == 1",
        ),
        Break("null keys are hashed", "len(topics) == 1 and not key.null_count:", "len(topics) == 1:"),
        Break("partitions that do not exist", "        if len(wrong):\n", "        if False:\n"),
        Break(
            "partitions below 0", "((found < 0) | (found >= counts[topic_of]))", "(found >= counts[topic_of])"
        ),
        Break("the partition behind the last", "(found >= counts[topic_of])", "(found > counts[topic_of])"),
        Break("one turn for all", "            self._turn += 1\n", ""),
        Break(
            "all topics have the first one's partitions",
            "murmur2_partition(keys, int(counts[number]))",
            "murmur2_partition(keys, int(counts[0]))",
        ),
        Break(
            "keys of rows that have a partition",
            "(topic_of == number) & (found == NO_PARTITION)",
            "topic_of == number",
        ),
        Break(
            "keys of other rows",
            "keys = key if len(mine) == len(rows) else _take(key, mine)",
            "keys = key.slice(0, len(mine))",
        ),
        Break(
            "large batches as they are",
            "taken = columns if not begins else [_take(column, part) for column in columns]",
            "taken = columns",
        ),
        Break("the first row's place for all", "                row += batch.count\n", ""),
        Break("headers are left out", '("key", "value", "headers")]', '("key", "value", "no headers")]'),
    ),
    *mutants_of(
        "connector/sink/row_checksum.py",
        TALLY,
        Break("rows are not counted", "self.rows += len(rows)", "pass"),
        Break("order counts", "(self.checksum + int(", "(self.checksum * 31 + int("),
        Break("topics do not count", '_BYTES = ("key", "value", "topic")', '_BYTES = ("key", "value")'),
        Break("keys do not count", '_BYTES = ("key", "value", "topic")', '_BYTES = ("value", "topic")'),
        Break("partitions do not count", "    if partition is not None:\n", "    if False:\n"),
        Break("headers do not count", "return found if headers is None else", "return found if True else"),
        Break("the high bits only of the last", "% 2**32", "% 2**4"),
        Break(
            "null headers differ from none",
            "pc.fill_null(pc.list_value_length(column), 0)",
            "pc.fill_null(pc.list_value_length(column), 1)",
        ),
    ),
]
