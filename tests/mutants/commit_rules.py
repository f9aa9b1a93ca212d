"""Rules of the commit protocol, broken. Faults at every request are the model's; stories come first, for speed."""

from tests.mutants.mutant import Break, Mutant, mutants_of

HERE = "tests/connector/commit/"
STORIES = tuple(
    f"{HERE}test_{name}.py"
    for name in (
        "traps",
        "seal_traps",
        "own_markers",
        "late_attempt",
        "names",
        "replay",
        "restarts",
        "proofs",
        "decision",
    )
)
MODEL = (f"{HERE}test_replay_model.py", f"{HERE}test_model.py")
ALL = (*STORIES, *MODEL)

COPIES = ("tests/connector/sink/test_sink_steps.py",)
WITHIN = (f"{HERE}test_within.py", f"{HERE}test_write.py")

MUTANTS: list[Mutant] = [
    *mutants_of(
        "connector/commit/token_write.py",
        WITHIN,
        Break(
            "rows of a micro-batch are written again",
            "        if not gone.again:\n",
            "        if False:\n",
        ),
        Break("a checkpoint that was set back writes again", "    if newest > number:", "    if False:"),
        Break(
            "other rows of a micro-batch pass",
            "    if then.content.differs(now.content):\n",
            "    if False:\n",
        ),
        Break("a micro-batch is not remembered", "within=writes.after(now)", "within=writes"),
        Break("another topic in mid-batch is written", "    for one in found:\n", "    for one in ():\n"),
        Break(
            "a topic that a query knows is another one", "not known and now.content.rows", "now.content.rows"
        ),
        Break("rows that name their topic are others'", "and (_share(one, now) or (", "and (False or ("),
        Break("what this run has written stops it", "        and one.place not in claimed\n", ""),
        Break(
            "a token writes a batch's rows again",
            "if not same or one.place in claimed or",
            "if True or one.place in claimed or",
        ),
        Break(
            "two writes that are meant stop each other",
            "if not same or one.place in claimed or",
            "if not same or",
        ),
        Break(
            "a stream writes what foreachBatch has written",
            "if not done and (accepting",
            "if False and (accepting",
        ),
        Break("a stream never follows foreachBatch", "done = one.batch < batch.batch_id", "done = False"),
        Break(
            "foreachBatch writes what a stream has decided",
            "if decided is None or decided.batch_id < batch.batch_id:",
            "if True:",
        ),
        Break("a topic made anew is passed over", " or now[topic] not in (None, old)}", "}"),
        Break("a topic that was deleted is passed over", "if topic not in now or ", "if topic in now and "),
        Break("what is there is written twice", "if not again and not there:", "if not again:"),
        Break(
            "a write of foreachBatch is not finished",
            "    yield from finish(done)\n    return Within",
            "    return Within",
        ),
    ),
    *mutants_of(
        "connector/commit/decide.py",
        WITHIN,
        Break(
            "a run that was ended decides",
            "ending is None or ending.identity != namer.stamp.identity",
            "False",
        ),
        Break("a topic's id is not remembered", "decision.content, ballot.topics)", "decision.content)"),
        Break(
            "who ends a run does not find its decision",
            "        staged += [StageOffsets(own, *part) for part in copied]\n",
            "",
        ),
        Break(
            "what the namer has decided is forgotten",
            "for one in (last, None if namer is None else namer.last)",
            "for one in (last,)",
        ),
    ),
    *mutants_of(
        "connector/commit/decision.py",
        WITHIN,
        Break(
            "all winners have the decision's half",
            "parity(0 if names else batch.batch_id)",
            "parity(batch.batch_id)",
        ),
    ),
    *mutants_of(
        "connector/commit/leave_sink.py",
        ("tests/connector/sink/test_sink_steps.py", f"{HERE}test_restarts.py"),
        Break(
            "a sink that was left does not say so", "last is not None and left is not None and", "False and"
        ),
        Break(
            "who goes on in a sink is stopped",
            "last.start is not None and last.batch.query_id !=",
            "False and last.batch.query_id !=",
        ),
        Break("winners are carried out again", "winners=(), names=", "names="),
    ),
    *mutants_of(
        "connector/commit/begin.py",
        ("tests/connector/sink/test_sink_steps.py", *ALL),
        Break(
            "anybody goes on in a sink that was left",
            "        check_left(sink, last.left, starts)\n",
            "        pass\n",
        ),
        Break("who has left a sink cannot stay", "left.word in starts.words or (accept", "(accept"),
        Break("any batch goes on", "== last_run.batch.batch_id + 1", ">= last_run.batch.batch_id"),
        Break(
            "a replay goes on",
            "== last_run.batch.batch_id + 1",
            "in (last_run.batch.batch_id, last_run.batch.batch_id + 1)",
        ),
        Break("nobody goes on", "== last_run.batch.batch_id + 1", "== -1"),
        Break("two-phase commit is not demanded", "if two_phase is TwoPhase.REQUIRE:", "if False:"),
        Break("nothing is rolled forward", "if last is not None and not is_complete:", "if False:"),
        Break(
            "what is complete is asked for again",
            "if last is not None and not is_complete:",
            "if last is not None:",
        ),
        Break(
            "the checkpoint is not compared",
            "    check_checkpoint(sink, last, batch, leads_to)\n    spared = ",
            "    spared = ",
        ),
        Break("clear keeps nothing", "spared = last.participants if last else ()", "spared = ()"),
        Break("clear does not ask whose the sink is", "owner=owned.identity,", "owner=None,"),
        Break(
            "left-overs stay",
            "kept = yield from clear(sink, spared, owner=owned.identity, asked=not owned.acquired_now)",
            "kept = ()",
        ),
        Break(
            "what was asked before the sink was acquired is believed",
            "owner=owned.identity, asked=not owned.acquired_now)",
            "owner=owned.identity, asked=True)",
        ),
        Break("decisions are numbered from 1 again", "sequence=last.sequence if last else 0", "sequence=0"),
        Break("what is lost is written again unasked", "if on_lost is OnLost.STOP:", "if False:"),
        Break("lost partitions have to be readable", "prove(last.without(lost))", "prove(last)"),
        Break("partitions are not asked", "    yield from prove(last.without(lost))\n", ""),
        Break("acquired before it is looked at", "    yield from write_lost_markers(sink)  #", "    #"),
        Break(
            "a sink that was taken over goes on",
            "if not left_by(run, state, decode(sink, stored.chunks)):",
            "if False:",
        ),
        Break(
            "the raised epoch is another driver's",
            "if not left_by(run, state, decode(sink, stored.chunks)):",
            "if True:",
        ),
        Break(
            "an expired sink is another driver's",
            "        return None\n    if not left_by(",
            "        raise fenced(sink, state)\n    if not left_by(",
        ),
        Break(
            "markers on their way cost a new acquisition",
            'return ours and state.state in ("PrepareCommit", "CompleteCommit")',
            'return ours and state.state == "CompleteCommit"',
        ),
        Break("epochs have no end", "if state.identity.epoch > LAST_EPOCH:", "if False:"),
        Break(
            "what restored brokers lack is not compared",
            "(yield from raise_epoch(sink, run.identity)), stored, True)",
            "(yield from raise_epoch(sink, run.identity)), stored, False)",
        ),
        Break("epochs end too late", "LAST_EPOCH = 32_766", "LAST_EPOCH = 32_767"),
        Break("the epoch is not raised", "    if identity == run.identity:", "    if False:"),
        Break("anybody raises the epoch", "Acquire(sink.coordinator, identity)", "Acquire(sink.coordinator)"),
        Break(
            "who cannot raise the epoch is not replaced",
            "isinstance(raised, Refused) and raised.code in FENCED",
            "False",
        ),
        Break(
            "left by any run of the batch",
            "(last.incarnation, last.batch) == (run.incarnation, run.batch)",
            "last.batch == run.batch",
        ),
        Break(
            "left in any state",
            'return ours and state.state in ("PrepareCommit", "CompleteCommit")',
            "return ours",
        ),
        Break(
            "another query's batch is complete",
            "last.batch.query_id == query_id and last.batch.batch_id <= completed",
            "last.batch.batch_id <= completed",
        ),
        Break(
            "the newest complete batch is asked for",
            "last.batch.batch_id <= completed",
            "last.batch.batch_id < completed",
        ),
        Break(
            "the decided batch is a new one",
            "decided is None or batch.batch_id > decided.batch_id",
            "decided is None or batch.batch_id >= decided.batch_id",
        ),
        Break("an older batch is a replay", "if batch.batch_id < decided.batch_id:", "if False:"),
        Break(
            "a word is all that tells copies",
            "same_place = last.start.place == starts.place",
            "same_place = True",
        ),
        Break(
            "what the option topic of a copy names is not asked", "(None in given or len(given) == 1)", "True"
        ),
        Break("a backup is a copy", "    return not same_place or not same_topics\n", "    return True\n"),
        Break(
            "a copy of a running query replays what went elsewhere",
            "return not same_place and not same_topics and",
            "return False and",
        ),
        Break(
            "a moved checkpoint is a copy",
            "return not same_place and not same_topics and",
            "return not same_place and",
        ),
        Break("digests are not compared", "if not batch.repeats(decided):", "if False:"),
        Break(
            "at most once by the batch's number",
            "== (batch.batch_id, batch.query_id)",
            "in ((batch.batch_id, q) for _, q in stored.chunks.values())",
        ),
        Break(
            "at most once by the query",
            "if stored.chunks.get(0) == (batch.batch_id, batch.query_id):",
            "if stored.chunks.get(0, (0, None))[1] == batch.query_id:",
        ),
        Break(
            "the attempt is not noted",
            '    yield from demand(CommitOffsets(sink.attempts_group, note), f"{what} cannot be noted")\n',
            "",
        ),
    ),
    *mutants_of(
        "connector/commit/task_reports.py",
        (
            "tests/connector/checkpoint/test_spark_logs.py",
            "tests/connector/sink/test_sink_steps.py",
            *STORIES,
        ),
        Break("no digest is another one", "known = self.digest and other.digest", "known = True"),
        Break(
            "a digest of before is another one",
            "zip(self.digest.split(DIGESTS), other.digest.split(DIGESTS), strict=False)",
            "((self.digest, other.digest),)",
        ),
        Break(
            "what is read does not matter",
            "any(one != two for one, two in pairs)",
            "any(one != two for one, two in list(pairs)[:1])",
        ),
    ),
    *mutants_of(
        "connector/commit/winner.py",
        (f"{HERE}test_decision.py", *STORIES, *MODEL),
        Break(
            "who wrote ends what is sealed",
            "self.holder or self.participant.identity",
            "self.participant.identity",
        ),
    ),
    *mutants_of(
        "connector/commit/decision.py",
        (f"{HERE}test_decision.py", f"{HERE}test_large_decisions.py", *STORIES, *MODEL),
        Break(
            "all chunks are in one group",
            "at // anchors, {})[(ANCHOR, at % anchors)]",
            "0, {})[(ANCHOR, at)]",
        ),
        Break("chunks of a deleted sink count", "if whose(*chunk) in known}", "if True}"),
        Break("one other query is kept", "KEPT_QUERIES = 16", "KEPT_QUERIES = 1"),
        Break("the checksum is not compared", "zlib.crc32(text.encode()) != crcs[0]", "False"),
        Break("the oldest decision counts", "return max((offset", "return min((offset"),
        Break(
            "chunks of older decisions count",
            "for offset, metadata in chunks.values() if offset == newest]",
            "for offset, metadata in chunks.values()]",
        ),
        Break("other versions are read", "if magic != _MAGIC:", "if False:"),
        Break("a plan without room stops the batch", "len(pieces) > anchors and decision.ends", "False"),
        Break("the plan is not stored", '"ends": packed(decision.ends),', '"ends": "",'),
        Break("a plan that was left out is another batch", 'saved=None, ends="",', "saved=None,"),
        Break("a topic that was named since is another batch", ", topics=())", ")"),
        Break("a decision that has no room is cut", "if len(pieces) > anchors * MOST_GROUPS:", "if False:"),
        Break("holders of other producer ids", "if holder.producer_id == identity.producer_id:", "if True:"),
        Break("metadata longer than Kafka takes", "METADATA_LIMIT = 4096", "METADATA_LIMIT = 5000"),
        Break("no room for the head", "_HEAD_ROOM = 64", "_HEAD_ROOM = 0"),
        Break(
            "a winner of another run",
            "slot[:2] != (decision.incarnation, _half(decision.names, decision.batch))",
            "False",
        ),
        Break("the query's own batches are kept as others'", "if batch.query_id != query_id]", "if True]"),
        Break("the last batch of anybody", "if b.query_id == query_id), None)", "), None)"),
        Break(
            "an empty decision is none",
            "    if not chunks:\n        return None",
            "    if not chunks or len(chunks) == 1:\n        return None",
        ),
        Break("rows are not recorded", '"rows": decision.rows,', '"rows": (),'),
        Break("checksums are not recorded", '"sums": decision.checksums', '"sums": ()'),
        Break("other queries are not recorded", '"before": decision.earlier', '"before": ()'),
        Break("the oldest others are kept", "tuple(others[:KEPT_QUERIES])", "tuple(others[-KEPT_QUERIES:])"),
        Break(
            "what is sealed twice is another decision",
            "w._replace(holder=None) for w in",
            "w for w in",
        ),
        Break("the size is reckoned unsealed", "w._replace(holder=_later(w.participant.identity, 1))", "w"),
        Break("lost partitions are not left out", "if w.partition not in partitions", "if True"),
    ),
    *mutants_of(
        "connector/commit/finish.py",
        ALL,
        Break(
            "refused commits are done",
            "if not isinstance(answers[w.participant.name], ProducerIdentity)]\n    if not doubtful",
            "if False]\n    if not doubtful",
        ),
        Break(
            "what is open is lost",
            "still = [w for w in doubtful if _may_be_open(states[w.participant.name], w)]",
            "still = []",
        ),
        Break(
            "what is open is committed",
            "lost = [w for w in doubtful if w not in still and not",
            "lost = [w for w in still if not",
        ),
        Break(
            "what is committed is lost",
            "if w not in still and not _is_committed(states[w.participant.name])]",
            "if w not in still]",
        ),
        Break("sealed again is not taken over", "    if taken:\n", "    if False:\n"),
        Break("taken over and aborted", "end_sealed(True, taken)", "end_sealed(False, taken)"),
        Break("one proof is enough for all", "proven = all(", "proven = any("),
        Break("losses are never proven", "proven = all(", "proven = False and all("),
        Break("what is open still is not told of a loss", "unfinished=bool(unfinished)", "unfinished=False"),
        Break("what is not finished is finished", "    if unfinished:\n", "    if False:\n"),
        Break("open under any identity", "state.identity in (participant.identity, holder)", "True"),
        Break("open in any state", "state.state == ONGOING and state.identity in", "state.identity in"),
        Break(
            "open by its holder is not open",
            "state.identity in (participant.identity, holder)",
            "state.identity == participant.identity",
        ),
        Break("held by somebody is not open", "return held or is_open(", "return is_open("),
        Break(
            "no answer is held elsewhere",
            "winner.holder is not None and isinstance(answer, Refused)",
            "winner.holder is not None",
        ),
        Break("complete is no proof", '{"PrepareCommit", "CompleteCommit"}', '{"PrepareCommit"}'),
        Break("prepared is no proof", '{"PrepareCommit", "CompleteCommit"}', '{"CompleteCommit"}'),
        Break("an abort under way is none", '{"PrepareAbort", "CompleteAbort"}', '{"CompleteAbort"}'),
        Break(
            "another producer id's abort",
            "state.identity.producer_id == producer_id and epoch <=",
            "epoch <=",
        ),
        Break(
            "an earlier transaction's abort",
            "epoch <= state.identity.epoch <= epoch + 1",
            "state.identity.epoch <= epoch + 1",
        ),
        Break(
            "a later transaction's abort",
            "epoch <= state.identity.epoch <= epoch + 1",
            "epoch <= state.identity.epoch",
        ),
        Break(
            "a time-out is no abort",
            "epoch <= state.identity.epoch <= epoch + 1",
            "epoch == state.identity.epoch",
        ),
        Break(
            "any state is an abort", "if state is None or state.state not in ABORTED:", "if state is None:"
        ),
        Break("clear takes what is kept", "if name not in kept and _within(", "if _within("),
        Break("other sinks are cleared", "_within(sink.slot_of(name), only)]", "True]"),
        Break("other runs are cleared", "(only is None or only == (slot.incarnation, slot.parity))", "True"),
        Break(
            "the owner is not compared",
            "        check_owner(sink, owner, states[sink.coordinator])\n",
            "        pass\n",
        ),
        Break(
            "a sink that is gone is ours",
            "if state is None or state.identity != owner:",
            "if state is not None and state.identity != owner:",
        ),
        Break("anybody's sink is ours", "if state is None or state.identity != owner:", "if state is None:"),
        Break(
            "left-overs that stay are not told",
            "    for participant, why in left.items():\n",
            "    for participant, why in ():\n",
        ),
        Break("sealed left-overs stay", "    if not sealed:\n", "    if True:\n"),
        Break("sealed left-overs are committed", "end_sealed(False, sealed)", "end_sealed(True, sealed)"),
        Break(
            "a refused abort is done",
            "if isinstance(answer, (Refused, Unknown))}",
            "if isinstance(answer, Unknown)}",
        ),
        Break(
            "an abort without an answer is done",
            "if isinstance(answer, (Refused, Unknown))}",
            "if isinstance(answer, Refused)}",
        ),
        Break("what ended meanwhile is open", "if is_open(states[p.name], p)}", "}"),
        Break("nobody knows, so it is closed", "        return doubtful\n", "        return {}\n"),
        Break("left-overs are committed", "ask(End(False, wanted))", "ask(End(True, wanted))"),
        Break(
            "a winner nobody can commit is fine",
            "command = End(True, decision.enders)",
            "command = End(True, decision.participants)",
        ),
    ),
    *mutants_of(
        "connector/commit/sink_transaction.py",
        ALL,
        Break("one look", "LOOKS = 6", "LOOKS = 1"),
        Break("version 1 is version 2", "TV2 = 2", "TV2 = 1"),
        Break("version 2 is version 1", "TV2 = 2", "TV2 = 3"),
        Break("every marker is a commit", '"CompleteAbort": False', '"CompleteAbort": True'),
        Break(
            "pending offsets are none",
            "        if not _is_pending(answer):\n            break",
            "        if True:\n            break",
        ),
        Break("what is under way is closed", 'not in {"Ongoing", *_PREPARED}', 'not in {"Ongoing"}'),
        Break("an open transaction is closed", 'not in {"Ongoing", *_PREPARED}', "not in _PREPARED"),
        Break(
            "what cannot be told is waited for",
            "if state is not None and left.held and _is_pending(answer):",
            "if False:",
        ),
        Break(
            "what is readable by now stops the query",
            "and left.held and _is_pending(answer):",
            "and left.held:",
        ),
        Break(
            "acquired while markers are on their way", "not in {*_COMPLETE, *_PREPARED}:", "not in _COMPLETE:"
        ),
        Break("sure markers are not demanded", "if left.sure or (left.held and", "if (left.held and"),
        Break(
            "what nobody needs to know stops the query",
            "left.held and _is_pending((yield from look_up(sink.group)))",
            "left.held",
        ),
        Break(
            "a lost decision is not demanded",
            "if left.sure or (left.held and _is_pending((yield from look_up(sink.group)))):",
            "if left.sure:",
        ),
        Break("the epoch after the next is proof", "state.identity.epoch - 1)", "state.identity.epoch - 2)"),
        Break(
            "any identity is proof in version 1",
            "return own == state.identity == held",
            "return state.identity == held",
        ),
        Break(
            "any transaction of ours is proof",
            "return own == state.identity == held",
            "return own == state.identity",
        ),
        Break("version 2 is judged as version 1", "if version >= TV2:", "if False:"),
        Break("all failures are pending offsets", "and answer.code == ErrorCode.UNSTABLE_OFFSET_COMMIT", ""),
        Break(
            "what is held is written, sure or not",
            "commit is not None and is_ended(",
            "commit is not None or is_ended(",
        ),
        Break(
            "markers of all that is held",
            "WriteMarkers(tuple(sure), commit)",
            "WriteMarkers(tuple(held), commit)",
        ),
        Break(
            "written markers are not looked for",
            "    if not isinstance(answer, Refused):\n        held = yield",
            "    if False:\n        held = yield",
        ),
        Break("a refused marker is sure", "sure=any(h in sure for h in held)", "sure=bool(sure)"),
        Break("a sure marker does not count", "sure=any(h in sure for h in held)", "sure=False"),
        Break(
            "a decision that cannot be read is none",
            "        raise fault(\n",
            "        return Stored(1, {})\n        raise fault(\n",
        ),
        Break(
            "the missing right is not named", "answer.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED", "False"
        ),
    ),
    *mutants_of(
        "connector/commit/marker_proof.py",
        ALL,
        Break(
            "held once is lost",
            "        held = yield from _look_again(question, held, what)\n",
            "        pass\n",
        ),
        Break(
            "held is readable",
            "    if not held:\n        return\n    answer",
            "    if True:\n        return\n    answer",
        ),
        Break("a lost marker is not said", "    if held:\n        raise", "    if False:\n        raise"),
        Break(
            "a written marker is believed lost",
            "        held = yield from demand(question, what, MarkersMissing)\n    if held:\n        raise",
            "        pass\n    if held:\n        raise",
        ),
        Break(
            "the coordinator is asked after the partitions",
            'if not held or not any(state and state.state == "PrepareCommit" for state in states.values()):',
            "if True:",
        ),
        Break("asked for ever", "for _ in range(LOOKS):", "while True:"),
        Break("one look", "LOOKS = 10", "LOOKS = 1"),
        Break(
            "the sink's own transaction is not asked for",
            "    yield from write_lost_markers(sink, own)\n",
            "",
        ),
        Break(
            "the last decision is not proven",
            "    if last is not None:\n        yield from prove(last)",
            "    if last is None:\n        yield from prove(last)",
        ),
        Break("a commit is an abort", "ask(WriteMarkers(held))", "ask(WriteMarkers(held, False))"),
    ),
    *mutants_of(
        "connector/commit/seal.py",
        ALL,
        Break(
            "two-phase commit that is not offered is there",
            "    if isinstance(answer, NotOffered):\n        raise",
            "    if False:\n        raise",
        ),
        Break(
            "nobody knows whether it is offered",
            '    if isinstance(answer, (Refused, Unknown)):\n        raise CommitFault(f"{what}',
            '    if False:\n        raise CommitFault(f"{what}',
        ),
        Break(
            "holders are not recorded",
            "winner._replace(holder=_holder_of(winner.participant, answer))",
            "winner",
        ),
        Break("nothing is wrong", "        if why:\n", "        if False:\n"),
        Break("require is auto", "if policy is TwoPhase.REQUIRE else None", "if False else None"),
        Break("auto is require", "if policy is TwoPhase.REQUIRE else None", "if True else None"),
        Break(
            "a refused seal is one",
            '    if isinstance(answer, (Refused, Unknown)):\n        return f"{name}',
            '    if isinstance(answer, Unknown):\n        return f"{name}',
        ),
        Break("what was not open is sealed", "if answer.wrote is None:", "if False:"),
        Break(
            "whatever is open is sealed",
            "return None if answer.wrote == identity else",
            "return None if True else",
        ),
        Break(
            "any transaction is held",
            "isinstance(answer, Sealed) and answer.wrote == participant.identity",
            "isinstance(answer, Sealed)",
        ),
        Break(
            "no takeover is an end",
            "    ends: dict[str, ProducerIdentity | Failure] = {p.name: _not_held(held[p.name]) for p in wanted}",
            "    ends: dict[str, ProducerIdentity | Failure] = {p.name: p.identity for p in wanted}",
        ),
        Break("all are ended in one way", "ask(End(commit, tuple(ours)))", "ask(End(True, tuple(ours)))"),
        Break("all are aborted", "ask(End(commit, tuple(ours)))", "ask(End(False, tuple(ours)))"),
        Break(
            "ends without an answer are done",
            "            answers = {p.name: answers for p in ours}\n",
            "            answers = {p.name: p.identity for p in ours}\n",
        ),
    ),
    *mutants_of(
        "connector/commit/replay.py",
        (f"{HERE}test_replay.py", *MODEL),
        Break("replayed while some is open", "if loss.unfinished:", "if False:"),
        Break(
            "rows that name other topics are dropped",
            "    if option is not None:\n",
            "    if False:\n",
            COPIES,
        ),
        Break(
            "who stays in one place is a copy",
            "own is None or start.place == own.place or",
            "own is None or",
            COPIES,
        ),
        Break(
            "a copy of another topic is never accepted",
            'accept(f"copied:{start.word}") if others else',
            'accept("") if others else',
            COPIES,
        ),
        Break("replayed whatever is in the way", "if obstacle is not None:", "if False:"),
        Break("another batch is a replay", "if not batch.repeats(last.batch):", "if False:"),
        Break("what is not proven is written again", "if not loss.winners:", "if False:"),
        Break("decisions without rows are replayed", "if not last.rows:", "if False:"),
        Break("fewer tasks are the same", "if len(replay.rows) != len(last.rows):", "if False:"),
        Break("other numbers of rows are the same", "        if now != then:\n", "        if False:\n"),
        Break(
            "other rows are the same",
            "number, (now, then) in both if now != then]",
            "number, (now, then) in both if False]",
        ),
        Break(
            "no checksum is another one", "and replay.checksums and last.checksums:", "and replay.checksums:"
        ),
        Break(
            "a difference is not said",
            "    if wrong:\n        differences",
            "    if False:\n        differences",
        ),
    ),
    *mutants_of(
        "connector/commit/lost_transaction.py",
        (f"{HERE}test_seal_traps.py",),
        Break("an abort is always a time-out", "if open_ms >= state.timeout_ms:", "if True:"),
        Break("no abort is a time-out", "if open_ms >= state.timeout_ms:", "if False:"),
        Break("any state is a time-out", "if state is not None and is_aborted(state, own):", "if state:"),
        Break(
            "who is refused has lost the sink",
            "    state = states[own.name]\n    if state is not None and state.identity == own.identity:",
            "    state = states[own.name]\n    if False:",
        ),
        Break(
            "whose transaction is gone has lost the sink",
            '    """\n    if state is not None and state.identity == own.identity:',
            '    """\n    if False:',
        ),
    ),
    *mutants_of(
        "connector/commit/decide.py",
        ALL,
        Break("no time in hand", "SAFETY_MS = 10_000", "SAFETY_MS = 0"),
        Break("short time-outs are never enough", "min(SAFETY_MS, state.timeout_ms // 4)", "SAFETY_MS"),
        Break(
            "missing reports do not matter",
            "if len(present) < len(reports) or not present:",
            "if not present:",
        ),
        Break(
            "no report is a batch",
            "if len(present) < len(reports) or not present:",
            "if len(present) < len(reports):",
        ),
        Break("reports of several begins", "if len(stamps) > 1 or", "if"),
        Break(
            "another batch's reports", "stamp.batch.batch_id != batch_id or stamp.sink_id", "stamp.sink_id"
        ),
        Break(
            "another sink's reports",
            " or stamp.sink_id != sink.id:\n        raise CommitFault(\n",
            ":\n        raise CommitFault(\n",
        ),
        Break(
            "some found it decided",
            "if decided & set(stamp.lost) or ((decided or stamp.lost) and others - set(stamp.lost)):",
            "if False:",
        ),
        Break("a lost partition found it decided", "if decided & set(stamp.lost) or (", "if ("),
        Break(
            "others than the lost ones wrote again",
            "((decided or stamp.lost) and others - set(stamp.lost))",
            "(decided and others - set(stamp.lost))",
        ),
        Break(
            "two reports for one partition",
            "if len({report.partition for report in prepared}) < len(prepared):",
            "if False:",
        ),
        Break("two topics of one name", "if ids.setdefault(topic, number) != number:", "if False:"),
        Break("a replay is what was decided", "bool(decided) and not stamp.lost", "bool(decided)"),
        Break(
            "rows of some are rows of all",
            "    if len(in_order) < len(reports):\n        return (), ()\n",
            "",
        ),
        Break("some checksums are all", "known if len(known) == len(checksums) else ()", "known"),
        Break(
            "other queries are forgotten",
            "last.earlier_than(stamp.batch.query_id) if last is not None else ()",
            "()",
        ),
        Break("numbers stand still", "stamp.sequence + 1,", "stamp.sequence,"),
        Break("decided twice", "if _replays(last, stamp) or not _covers(last, stamp.batch):", "if True:"),
        Break(
            "a replay is not decided",
            "if _replays(last, stamp) or not _covers(last, stamp.batch):",
            "if not _covers(last, stamp.batch):",
        ),
        Break(
            "a decision that is gone is not missed",
            "if ballot.decided or (stamp.lost and not _replays(last, stamp)):",
            "if False:",
        ),
        Break(
            "a replay of what is gone",
            "if ballot.decided or (stamp.lost and not _replays(last, stamp)):",
            "if ballot.decided:",
        ),
        Break(
            "decided behind another driver",
            "if (last.sequence if last else 0) != stamp.sequence:",
            "if False:",
        ),
        Break(
            "a replay is not compared",
            "        check_replay(last, decision, stamp.lost)\n",
            "        pass\n",
        ),
        Break(
            "another driver's decision is ours",
            "and not ballot.decided and last.unsealed != decision:",
            "and False:",
        ),
        Break("holders are compared", "last.unsealed != decision:", "last != decision:"),
        Break("what is decided is not finished", "        yield from finish(last)\n", "        pass\n"),
        Break(
            "losers stay open",
            "    yield from clear(sink, last.participants, only=mine, asked=True)\n",
            "",
        ),
        Break("winners are cleared", "clear(sink, last.participants, only=", "clear(sink, (), only="),
        Break(
            "everybody is cleared",
            "clear(sink, last.participants, only=mine, asked=True)",
            "clear(sink, last.participants, asked=True)",
        ),
        Break(
            "covered by equality", "decided.batch_id >= batch.batch_id", "decided.batch_id == batch.batch_id"
        ),
        Break(
            "covered by anything",
            "decided is not None and decided.batch_id >= batch.batch_id",
            "decided is not None",
        ),
        Break(
            "too large is said after sealing",
            "    encode(as_usual, sink, stamp.anchors)",
            "    #",
        ),
        Break("sealed though it is off", "and two_phase is not TwoPhase.NEVER:", ":"),
        Break("never sealed", "if decision.winners and two_phase is not TwoPhase.NEVER:", "if False:"),
        Break("source offsets are not staged", "if source is not None and source.offsets:", "if False:"),
        Break(
            "decided without its offsets",
            "            raise fault\n    yield from _verify",
            "            return decision\n    yield from _verify",
        ),
        Break(
            "what was refused stays open",
            "            yield from _withdraw(own, decision)\n            raise fault\n",
            "            raise fault\n",
        ),
        Break(
            "winners that are open again are forgotten",
            "before = [(one, winner) for one in lasts for winner in one.winners]",
            "before: list[tuple[Decision, Winner]] = []",
        ),
        Break(
            "winners are not verified",
            "    yield from _verify(sink, own, decision, began_ms, last, namer)\n",
            "",
        ),
        Break(
            "no answer is a decision",
            "    if isinstance(outcome, ProducerIdentity):",
            "    if not isinstance(outcome, Refused):",
        ),
        Break(
            "a refusal is a decision",
            "    if isinstance(outcome, ProducerIdentity):",
            "    if not isinstance(outcome, Unknown):",
        ),
        Break(
            "sealing without an answer goes on",
            '        raise _refusal(sink, decision, "its transactions could not be kept open", answers)',
            "        return decision",
        ),
        Break(
            "what cannot be sealed is decided",
            "    if wrong:\n        state =",
            "    if False:\n        state =",
        ),
        Break(
            "fenced before its seal is told of time-outs",
            "            check_owner(sink, own.identity, state[own.name])  #",
            "            pass  #",
        ),
        Break(
            "who owns the sink has to be known",
            "        if not isinstance(state, (Refused, Unknown)):\n            check",
            "        if True:\n            check",
        ),
        Break("sealed and refused stays open", "        yield from _withdraw(own, sealed)\n", ""),
        Break(
            "fenced is merely refused",
            "    if isinstance(answer, Refused) and answer.code in FENCED:\n        return fenced",
            "    if False:\n        return fenced",
        ),
        Break(
            "nobody can be looked up",
            '        raise _refusal(sink, decision, "its transactions could not be looked up", states)',
            "        return",
        ),
        Break(
            "a winner that is not open",
            "    if state is None or not is_open(state, participant, winner.holder):\n",
            "    if state is None:\n",
        ),
        Break("time is not looked at", "if left < min(SAFETY_MS", "if False and left < min(SAFETY_MS"),
        Break(
            "participants stay open when it is given up",
            "    yield from try_abort(decision.enders)\n\n\ndef _find_out",
            "\n\ndef _find_out",
        ),
        Break(
            "the sink's own stays open when it is given up", "    yield from ask(End(False, (own,)))\n", ""
        ),
        Break(
            "why offsets are refused does not matter",
            "            fault = yield from why_refused(sink, own, decision.batch, began_ms, fault)\n            yield",
            "            yield",
        ),
        Break(
            "why the commit is refused does not matter",
            "    fault = yield from why_refused(sink, own, decision.batch, began_ms, fault)\n    yield",
            "    yield",
        ),
        Break("unknown is refused", "        raise OutcomeUnknown(\n", "        raise BatchRefused(\n"),
        Break(
            "anybody's decision is ours",
            "last is not None and last.unsealed == decision.unsealed",
            "last is not None",
        ),
        Break(
            "behind another driver it is merely refused",
            "if last is not None and last.sequence > decision.sequence:",
            "if False:",
        ),
        Break(
            "a refused commit stays open",
            "    yield from try_abort(decision.enders)\n    raise fault",
            "    raise fault",
        ),
        Break(
            "the sink's pending offsets are not waited for",
            "stored = yield from ask_stored(sink, own.identity)",
            "stored = yield from ask(FetchStored(sink.group))",
        ),
    ),
    *mutants_of(
        "connector/commit/commands.py",
        (f"{HERE}test_large_decisions.py",),
        Break(
            "what has no room is not read", "while lacks_chunks(chunks) and number", "while False and number"
        ),
        Break(
            "a decision that is made meanwhile is a damaged one",
            "if isinstance(again, Stored) and newest_of(again.chunks) == newest_of(chunks):",
            "if True:",
        ),
        Break(
            "a refusal of a group that follows is one of the sink's",
            "return Unknown(str(more))",
            "return more",
        ),
    ),
    *mutants_of(
        "connector/commit/abandon.py",
        ALL,
        Break(
            "a batch on its way is over",
            "if own is not None and own.identity != run.identity:",
            "if True:",
        ),
        Break(
            "an ended batch is not over",
            "if own is not None and own.identity != run.identity:",
            "if False:",
        ),
        Break(
            "what late tasks have opened is over",
            "        return not (yield from _open_of(sink, run))\n    return (yield",
            "        return True\n    return (yield",
        ),
        Break(
            "a decided batch is over before it is finished",
            "        return False\n    return not (yield from _open_of(sink, run))",
            "        return False\n    return True",
        ),
        Break(
            "an end is not marked",
            "ask(Acquire(sink.coordinator, run.identity))",
            "ask(FetchStored(sink.group))",
        ),
        Break(
            "an end takes the sink from anybody",
            "Acquire(sink.coordinator, run.identity)",
            "Acquire(sink.coordinator)",
        ),
        Break("an end without a look at lost markers", "yield from write_lost_markers(sink)", "pass"),
        Break("an end without an answer is one", "if isinstance(raised, Unknown) or (", "if ("),
        Break("what is decided is not carried out", "yield from finish(ours)", "pass"),
        Break("what is decided is aborted", "ours.participants if ours is not None else ()", "()"),
        Break(
            "another driver's decision is carried out", "and last.incarnation == run.incarnation else", "else"
        ),
    ),
    *mutants_of(
        "connector/commit/prepare.py",
        ALL,
        Break("a task of another batch writes", "if begun.batch[:2] != (query_id, batch_id):", "if False:"),
        Break(
            "a decided batch is written again",
            "if done is not None and (begun.passes or done[:2] == (query_id, batch_id)):",
            "if begun.passes:",
        ),
        Break(
            "decided by its number alone",
            "done[:2] == (query_id, batch_id)):",
            "done[1] == batch_id):",
        ),
        Break(
            "lost partitions pass",
            "Task.WRITE if partition in begun.lost else Task.PASS_DECIDED",
            "Task.PASS_DECIDED",
        ),
        Break(
            "all partitions are written again",
            "Task.WRITE if partition in begun.lost else Task.PASS_DECIDED",
            "Task.WRITE if begun.lost else Task.PASS_DECIDED",
        ),
        Break("at most once is tried twice", "Task.DROP if begun.dropped else Task.WRITE", "Task.WRITE"),
        Break(
            "a late attempt does not know",
            "if state is None or _is_as_begun(state, stamp, version):",
            "if True:",
        ),
        Break("an attempt in time is late", "state.identity == stamp.identity and", "False and"),
        Break("another driver's sink is as begun", "state.identity == stamp.identity and", ""),
        Break("late attempts commit", "ask(End(False, (participant,)))", "ask(End(True, (participant,)))"),
        Break(
            "names of the other parity",
            "Slot(stamp.incarnation, parity(stamp.batch.batch_id), worker, number)",
            "Slot(stamp.incarnation, 1 - parity(stamp.batch.batch_id), worker, number)",
        ),
    ),
    *mutants_of(
        "connector/commit/transactional_ids.py",
        (f"{HERE}test_names.py", *STORIES),
        Break("a slash in the sink's id", '.replace("/", "%2F")', ""),
        Break("a per cent sign in the sink's id", '.replace("%", "%25")', ""),
        Break("a prefix without its end", 'return f"{self.coordinator}/"\n', "return self.coordinator\n"),
        Break(
            "any name with the prefix",
            "if match is None:\n            return None",
            "if match is None:\n            return Slot(ProducerIdentity(0, 0), 0, name, 0)",
        ),
        Break("one parity", "return batch_id % 2", "return 0"),
        Break("a parity of three", "return batch_id % 2", "return batch_id % 3"),
        Break("attempts beside the decision", 'f"{self.coordinator}/attempts"', "self.coordinator"),
        Break("what is finished beside the decision", 'f"{self.coordinator}/finished"', "self.coordinator"),
    ),
    *mutants_of(
        "connector/commit/commands.py",
        ALL,
        Break("an epoch that is too low is no fencing", "ErrorCode.INVALID_PRODUCER_EPOCH, ", ""),
        Break(
            "a failure is a result",
            "    if isinstance(answer, (Refused, Unknown)):\n        raise",
            "    if isinstance(answer, Unknown):\n        raise",
        ),
        Break(
            "no answer is a result",
            "    if isinstance(answer, (Refused, Unknown)):\n        raise",
            "    if isinstance(answer, Refused):\n        raise",
        ),
    ),
]
