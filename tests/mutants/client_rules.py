"""Rules of the Kafka client, broken."""

from tests.mutants.mutant import Break, Mutant, mutants_of

HERE = "tests/connector/client/"
WINDOW = (f"{HERE}test_window.py", f"{HERE}test_produce.py")
PRODUCE = (f"{HERE}test_window.py", f"{HERE}test_produce.py", f"{HERE}test_real_broker.py")
TRANSACTIONS = (f"{HERE}test_transactions.py", f"{HERE}test_pipelined.py", f"{HERE}test_real_broker.py")
RETRY = (f"{HERE}test_transactions.py", f"{HERE}test_cluster.py", f"{HERE}test_error_pairs.py", *PRODUCE)
MSK = (f"{HERE}test_msk_iam.py",)
TOKENS = (f"{HERE}test_security.py", f"{HERE}test_token_endpoint.py")
STORES = (f"{HERE}test_stores.py",)
READ = (f"{HERE}test_visible.py", f"{HERE}test_fetch.py", f"{HERE}test_real_broker.py")

MUTANTS: list[Mutant] = [
    *mutants_of(
        "connector/client/records/send_window.py",
        WINDOW,
        Break("sequences do not wrap", "add(base, count)", "base + count"),
        Break("every batch has the first sequence", "self._next[where] = add(base, count)", "pass"),
        Break("the oldest is taken off", "].remove(batch.number)", "].popleft()"),
        Break("a second batch out of order is fatal", "and not self.oldest(batch)", "and False"),
        Break("a gap before the oldest batch is tried again", "and not self.oldest(batch)", "and True"),
        Break(
            "a second batch leaves beside the first one",
            "return batch.where in self._begun or self.oldest(batch)",
            "return True",
        ),
        Break(
            "a batch that is in the log already fails",
            "or outcome(code, ApiKey.PRODUCE) is ErrorOutcome.ANSWER",
            "",
        ),
        Break("a refused batch is sent again", "else BatchVerdict.FAILED", "else BatchVerdict.AGAIN"),
        Break("six requests may be unanswered", "MAX_UNANSWERED = 5", "MAX_UNANSWERED = 6"),
        Break("two batches of a partition in a request", "batch.where in taken or ", ""),
        Break("requests of any size", "or size + batch.size > max_bytes", ""),
        Break("the size of a request is not summed up", "size += batch.size", "pass"),
    ),
    *mutants_of(
        "connector/client/wire/msk_iam.py",
        MSK,
        Break("any answer is an acceptance", "if not accepted:", "if False:"),
        Break("refused credentials are kept", "_credentials.pop(aws, None)", "pass"),
        Break(
            "another action is signed", '_ACTION = "kafka-cluster:Connect"', '_ACTION = "kafka-cluster:Read"'
        ),
        Break(
            "botocore logs session tokens",
            "    _quieten()\n",
            "",
            tests=("tests/connector/options/test_secrets.py",),
        ),
        Break("the region given is ignored", "if aws.region is not None:", "if False:"),
    ),
    *mutants_of(
        "connector/client/wire/tokens.py",
        TOKENS,
        Break(
            "an old token is used for ever",
            "if kept is None or asked_at >= kept.ends_at:",
            "if kept is None:",
        ),
        Break(
            "the claim that names the user may be missing",
            "and settings.subject_claim not in claims:",
            "and False:",
        ),
        Break("id and secret are always encoded", "if settings.url_encoded else text", ""),
        Break("a token's own end is ignored", "lives.append(max(ends - self._now(), 0.0))", "pass"),
        Break("a token is kept to its very end", "REFRESH_AT = 0.8", "REFRESH_AT = 1.0"),
        Break("a token that has ended is kept", "if seconds <= 0:", "if False:"),
        Break("a time since 1970 is taken for a life", "if seconds > _LONGEST_S:", "if False:"),
        Break("milliseconds are taken for seconds", "if seconds > left + _CLOCKS_DIFFER_S:", "if False:"),
        Break("a life without a number", "not isinstance(seconds, int | float)", "False"),
    ),
    *mutants_of(
        "connector/client/wire/kerberos_settings.py",
        (f"{HERE}test_kerberos_forms.py",),
        Break("a keytab is passed over", 'if "keyTab" in login and not by_keytab:', "if False:"),
        Break("a cache is passed over", 'elif "ticketCache" in login and not by_cache:', "elif False:"),
        Break("whoever has run kinit", "elif not by_keytab and not by_cache:", "elif False:"),
        Break("a broker's login", 'elif not _true(login, "isInitiator", "true"):', "elif False:"),
        Break("a renewal that nobody does", 'elif _true(login, "renewTGT"):', "elif False:"),
        Break("a misspelt option", "if name not in _USED + _NO_EFFECT:", "if False:"),
        Break("another service", 'if login.get("serviceName", service) != service:', "if False:"),
    ),
    *mutants_of(
        "connector/client/wire/security_settings.py",
        (f"{HERE}test_security.py",),
        Break(
            "a delegation token is taken for a user",
            'delegated=login.get("tokenauth", "").lower() == "true",',
            "",
        ),
        Break(
            "options of another Krb5LoginModule",
            'if login.package.startswith("com.ibm."):',
            "if False:",
            (f"{HERE}test_kerberos_forms.py",),
        ),
        Break(
            "ssl. options of a login are ignored",
            "    if trust:\n",
            "    if False:\n",
        ),
    ),
    *mutants_of(
        "connector/client/wire/token_settings.py",
        (f"{HERE}test_token_endpoint.py",),
        Break(
            "the older names come first",
            'client_id=given.get("client.credentials.client.id") or login.get("clientId", ""),',
            'client_id=login.get("clientId", "") or given.get("client.credentials.client.id"),',
        ),
        Break(
            "an assertion comes from two places",
            'if ("file" in said) == ("private.key.file" in said):',
            "if False:",
        ),
        Break("any class gets tokens", "if name and name not in RETRIEVERS:", "if False:"),
    ),
    *mutants_of(
        "connector/client/wire/assertions.py",
        (f"{HERE}test_token_endpoint.py",),
        Break("an assertion never ends", "int(now) + of.expires_s", "int(now) + 9_000_000"),
        Break(
            "the template is ignored", "template = _template(of)", "template: dict[str, dict[str, Any]] = {}"
        ),
    ),
    *mutants_of(
        "protocol/jks.py",
        STORES,
        Break("a wrong password opens a store", "if not hmac.compare_digest(expected, digest):", "if False:"),
    ),
    *mutants_of(
        "protocol/stores.py",
        STORES,
        Break("one of several keys is used", "if len(aliases) != 1:", "if not aliases:"),
        Break("other keys of PKCS12 are not seen", '*["another"] * (keys - 1)', ""),
        Break(
            "an expired certificate is used",
            "if (end := _ends(key.chain[0])) < datetime.now(UTC):",
            "if not (end := _ends(key.chain[0])):",
        ),
        Break("an expired trust store is used", "if max(ends) < now:", "if False:"),
        Break(
            "a file is taken for what the option does not say", 'or (wanted == "PEM") != (found == "PEM")', ""
        ),
        Break(
            "the password of a PEM store is ignored",
            'if found == "PEM" and store.password is not None:',
            "if False:",
        ),
    ),
    *mutants_of(
        "connector/client/wire/tls.py",
        STORES,
        Break("a key lies on the disk", 'if sys.platform == "linux":', 'if sys.platform == "none":'),
    ),
    *mutants_of(
        "connector/client/wire/connection.py",
        STORES,
        Break("stores are read after the connection is made", "            self._check_tls()\n", ""),
    ),
    *mutants_of(
        "connector/client/wire/error_outcomes.py",
        RETRY,
        Break("nothing is tried again", "ErrorOutcome.AGAIN if info(code).retriable else ", ""),
        Break("everything is tried again", "if info(code).retriable else ErrorOutcome.REFUSED", ""),
        Break("departures do not count", "if departure is not None:", "if False:"),
    ),
    *mutants_of(
        "connector/client/wire/retry.py",
        RETRY,
        Break("a negative error code is none", "    if code:\n", "    if code > 0:\n"),
        Break(
            "what passes within a moment is refused",
            "in (ErrorOutcome.AGAIN, ErrorOutcome.BRIEFLY)",
            "is ErrorOutcome.AGAIN",
        ),
        Break("a lost connection is final", "(ConnectionLost, BrokerUnreachable))", "BrokerUnreachable)"),
        Break("a broker that is away is final", "(ConnectionLost, BrokerUnreachable))", "ConnectionLost)"),
        Break("final codes are tried again", "isinstance(error, final)", "False"),
        Break("what should pass in a moment is waited for", "if brief.over:", "if False:"),
        Break("wrong addresses are waited for", "and not cluster.reached", "and False"),
        Break("the old coordinator is asked for ever", "            forget()\n", ""),
        Break(
            "lost brokers are not noted",
            "            cluster.note(error)\n",
            "",
            (*RETRY, "tests/connector/sink/test_writer_disturbed.py"),
        ),
        Break(
            "pauses go beyond the deadline",
            "min(wait / 1000, self.deadline - time.monotonic())",
            "wait / 1000",
        ),
        Break("pauses do not grow", "self._first * 2**self._tries", "self._first"),
    ),
    *mutants_of(
        "connector/client/records/produce.py",
        PRODUCE,
        Break("an idempotent producer without acks", "acks != -1 or ", ""),
        Break(
            "an idempotent producer with any number in flight",
            "not 0 < max_in_flight <= MAX_UNANSWERED",
            "max_in_flight < 1",
        ),
        Break(
            "a transaction without an identity",
            "if transactional_id is not None and identity is None:",
            "if False:",
        ),
        Break(
            "every cluster has version 2",
            "transactional_id is None or cluster.transaction_version() >= transactions.TV2",
            "True",
        ),
        Break("a producer that failed goes on", "        if self._failed is not None:", "        if False:"),
        Break("one more in flight", "self.max_in_flight - 1)", "self.max_in_flight)"),
        Break(
            "nobody waits for the first batch",
            "if not all(map(self._unanswered.may_leave, request)):",
            "if False:",
        ),
        Break("partitions are enlisted again", "} - self._enlisted", "}"),
        Break("partitions are not enlisted", "new and not self._tv2:", "False:"),
        Break(
            "a topic that is gone is created",
            "create=topic not in self.topic_ids",
            "create=True",
            (*PRODUCE, "tests/connector/sink/test_writer_routing.py"),
        ),
        Break("half of a batch in the old topic", "if pinned is not None and any(", "if False and any("),
        Break("another topic of the name is not noticed", "if now == pinned or now is None:", "if True:"),
        Break(
            "topics are named, not told by their ids", "_PRODUCE_BY_ID if all(", "_PRODUCE_BY_NAME if all("
        ),
        Break(
            "an old broker in a transaction of version 2",
            "_PRODUCE_TV2_MIN if in_transaction and self._tv2 else 0",
            "0",
        ),
        Break("version 1 enlists by itself", "highest if self._tv2 else _PRODUCE_TV1_MAX", "highest"),
        Break(
            "not named in an answer is written",
            'raise self._failure(batch, ErrorCode.UNKNOWN_SERVER_ERROR, "the answer leaves this partition out")',
            "return None",
        ),
        Break("a refused batch goes again", "if verdict is BatchVerdict.FAILED:", "if False:"),
        Break(
            "what goes again is in disorder",
            "key=lambda batch: batch.number",
            "key=lambda batch: -batch.number",
        ),
        Break("what was on its way is forgotten", "(*self._queue, *uncertain)", "self._queue"),
        Break("what was sent stays in the queue", "if id(batch) not in sent)", ")"),
        Break("an unknown outcome is tried again", "(uncertain or unclear)", "unclear"),
        Break("an unclear answer is tried again", "(uncertain or unclear)", "uncertain"),
        Break(
            "batches go for ever",
            "self._queue and (backoff.over or",
            "False and (backoff.over or",
            hangs=True,
        ),
        Break(
            "the old leader is asked again",
            "            self.cluster.forget_topic(topic)\n",
            "            pass\n",
        ),
        Break(
            "a refusal while settling is dropped",
            "            except ProduceFailed as error:\n                self._give_up(error)",
            "            except ProduceFailed:\n                pass",
        ),
        Break("flush does not wait", "self._pump(wait=True)", "self._pump()"),
        Break(
            "records are not told as a transaction's",
            "base, self.transactional_id is not None",
            "base, False",
        ),
        Break("records are not counted", "self.records += batch.count", "pass"),
        Break(
            "a request is packed without a limit",
            "pack(batches, self.cluster.config.max_request_bytes)",
            "pack(batches, 1 << 40)",
        ),
    ),
    *mutants_of(
        "connector/client/wire/cluster.py",
        (f"{HERE}test_cluster.py",),
        Break(
            "old news are asked for again", "            self._doubted = self._asked\n", "            pass\n"
        ),
        Break(
            "a broker that is alone is not asked again",
            "                if address in usable:\n                    return usable[address]\n",
            "                if address in usable:\n                    continue\n",
        ),
    ),
    *mutants_of(
        "connector/client/wire/cluster.py",
        PRODUCE,
        Break(
            "connections with answers to come are used again",
            "if connection.closed or connection.waiting:",
            "if connection.closed:",
        ),
    ),
    *mutants_of(
        "connector/client/admin/transactions.py",
        TRANSACTIONS,
        Break(
            "a broker that does not know who goes on",
            "min_version=INIT_CURRENT if current else 0",
            "min_version=0",
        ),
        Break("nobody says who goes on", "if current is not None:", "if False:"),
        Break(
            "a refused identity is taken",
            'check(answer["error_code"], f"InitProducerId of {transactional_id!r} with time-out {timeout_ms} ms")',
            "pass",
        ),
        Break("a repeat at another version", "if name not in chosen:", "if True:"),
        Break("version 1 ends as version 2", "_END_TXN_TV2 if tv2 else _END_TXN_TV1", "_END_TXN_TV2"),
        Break(
            "the raised epoch is not taken",
            'chosen[name] < _END_TXN_TV2 or answer["producer_id"] < 0',
            "True",
        ),
        Break(
            "a refused end is done",
            'check(answer["error_code"], f"{verb} of {name!r} as {identities[name]}")',
            "pass",
        ),
        Break("all brokers end together", "connection.ends_together and ", ""),
        Break("version 1 ends together", "!= {_END_TXN_TV2}", "== set()"),
        Break("the others are not named", "[named(name) for name in others]", "[]"),
        Break("commit is abort", '"committed": commit', '"committed": False'),
        Break("sealed by a broker that starts anew", "min_version=_INIT_KEEPS)", "min_version=0)"),
        Break("nothing is kept", '"keep_prepared_txn": True', '"keep_prepared_txn": False'),
        Break("two-phase commit is not asked for", '"enable2_pc": True', '"enable2_pc": False'),
        Break("nothing open looks like something", "wrote if wrote.producer_id >= 0 else None", "wrote"),
        Break(
            "a refused seal is done",
            'check(answer["error_code"], f"InitProducerId(keepPreparedTxn) of {name!r}")',
            "pass",
        ),
        Break("version 1 adds offsets by itself", "    if not tv2:\n", "    if False:\n"),
        Break("an old broker takes offsets in version 2", "_TXN_OFFSETS_TV1 + 1 if tv2 else 0", "0"),
        Break("version 1 asks as version 2", "None if tv2 else _TXN_OFFSETS_TV1,", "None,"),
        Break(
            "offsets that are not answered are taken",
            '    if missing:\n        raise RefusedByBroker(ErrorCode.UNKNOWN_SERVER_ERROR, f"{what}',
            '    if False:\n        raise RefusedByBroker(ErrorCode.UNKNOWN_SERVER_ERROR, f"{what}',
        ),
        Break("what passes hides what does not", "worst = refused[0][2]", "worst = refused[-1][2]"),
        Break("refused offsets are taken", "    if refused:\n", "    if False:\n"),
        Break("version 1 is version 2", "TV2 = 2", "TV2 = 1"),
        Break(
            "version 1 aborts under the epoch of its rows",
            "{} if commit or cluster.transaction_version() >= TV2 else abort_by_epoch(cluster, identities)",
            "{}",
        ),
    ),
    *mutants_of(
        "connector/client/admin/transaction_states.py",
        TRANSACTIONS,
        Break(
            "markers are not waited for",
            "    while left:\n        states",
            "    while False:\n        states",
        ),
        Break(
            "aborts have no markers",
            '_PREPARED = frozenset({"PrepareCommit", "PrepareAbort"})',
            '_PREPARED = frozenset({"PrepareCommit"})',
        ),
        Break(
            "all are asked again",
            "for name, state in states.items() if state and state.state in _PREPARED]",
            "for name, state in states.items() if any(s and s.state in _PREPARED for s in states.values())]",
        ),
        Break("markers are waited for everywhere", "if not at.ends_together for name", "for name"),
        Break(
            "markers are waited for without end", "if not left or time.monotonic() >= until:", "if not left:"
        ),
        Break("what is known is asked again", "[i for i in ids if i not in found]", "list(ids)"),
        Break(
            "left out by the coordinator",
            '            if missing:\n                raise RefusedByBroker(\n                    ErrorCode.UNKNOWN_SERVER_ERROR, f"DescribeTransactions',
            '            if False:\n                raise RefusedByBroker(\n                    ErrorCode.UNKNOWN_SERVER_ERROR, f"DescribeTransactions',
        ),
        Break(
            "an unknown id is an error",
            'state["error_code"] == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND',
            "False",
        ),
    ),
    *mutants_of(
        "connector/client/admin/abort_by_epoch.py",
        (f"{HERE}test_abort_by_epoch.py",),
        Break(
            "any identity's transaction is aborted",
            "(state.state, state.identity) == (_OPEN, identity)",
            "state.state == _OPEN",
        ),
        Break(
            "how a commit ended is hidden",
            "(state.state, state.identity) == (_OPEN, identity)",
            "state.identity == identity",
        ),
        Break("nobody says whose it is", '"producer_id": who.producer_id', '"producer_id": -1'),
        Break("a broker that does not know whose it is", "min_version=INIT_CURRENT", "min_version=0"),
        Break(
            "whatever came of it is an abort", "state.state in _ABORTED and state.identity == raised", "True"
        ),
        Break("an abort under the old epoch will do", "state.identity == raised", "True"),
        Break("a refused abort is looked at again", "ended |= refused", "pass"),
        Break("asked without end", "if still and backoff.over:", "if False:", hangs=True),
        Break("any time-out is asked for", "min(state.timeout_ms, _MOST_TIMEOUT_MS)", "state.timeout_ms"),
        Break(
            "a busy coordinator refuses",
            'if answer["error_code"] != ErrorCode.CONCURRENT_TRANSACTIONS:',
            "if True:",
        ),
    ),
    *mutants_of(
        "connector/client/admin/group_offsets.py",
        (
            f"{HERE}test_transactions.py",
            f"{HERE}test_real_broker.py",
            "tests/connector/run/test_trap_defences_outside.py",
        ),
        Break("a broker that cannot wait is asked", "_REQUIRE_STABLE if require_stable else 2", "2"),
        Break("pending offsets do not count", '"require_stable": require_stable', '"require_stable": False'),
        Break("pending offsets are never told", "if waited * 1000 < pending_ms:", "if True:"),
        Break("pending offsets are told at once", "if waited * 1000 < pending_ms:", "if False:"),
        Break("the patience begins anew", "since = since or time.monotonic()", "since = time.monotonic()"),
        Break(
            "a refused partition has no offset",
            'check(part["error_code"], f"OffsetFetch of {where[0]}-{where[1]} in group {group!r}")',
            "pass",
        ),
        Break(
            "a refused group has no offsets",
            'check(answer["error_code"], f"OffsetFetch of group {group!r}")',
            "pass",
        ),
        Break("none is an offset", 'if part["committed_offset"] >= 0:', "if True:"),
        Break(
            "refused offsets are committed",
            'check(part["error_code"], f"OffsetCommit of {name} to group {group!r}")',
            "pass",
        ),
        Break(
            "a decision on its way is not waited for",
            "max(cluster.config.api_timeout_ms, least_ms)",
            "cluster.config.api_timeout_ms",
            (f"{HERE}test_transactions.py", "tests/connector/source/test_source_stream.py"),
        ),
    ),
    *mutants_of(
        "connector/client/wire/pipelined.py",
        (f"{HERE}test_pipelined.py", f"{HERE}test_transactions.py"),
        Break("all are asked again", "[name for name in wanted if name not in found]", "list(wanted)"),
        Break("what passes is final", "            if passes(error):\n", "            if False:\n"),
        Break("what is final is tried again", "            if passes(error):\n", "            if True:\n"),
        Break("those without an answer are left out", "found |= dict.fromkeys(left(), error)", "raise"),
        Break(
            "the coordinator is not looked for again",
            'cluster.forget_coordinator("transaction", *left())',
            "pass",
        ),
        Break(
            "one broker that does not serve it stops all",
            "            found[name] = error\n            continue",
            "            raise",
        ),
        Break(
            "answers are read in another order",
            "connection.answer(api)) for name in mine)",
            "connection.answer(api)) for name in reversed(mine))",
        ),
        Break("a lost connection stops the others", "        failures.append(error)\n", "        raise\n"),
        Break(
            "answers are left for the next user",
            "            if connection.waiting:",
            "            if False:",
        ),
        Break("who ended together is asked alone as well", "if name not in answers", "if True"),
        Break("who is left out of the answer is not asked", "if name not in answers", "if not answers"),
        Break(
            "of those that end together only one is told",
            "_take_answers(answers.items(), ",
            "_take_answers([*answers.items()][:1], ",
        ),
    ),
    *mutants_of(
        "connector/client/admin/transaction_lists.py",
        (f"{HERE}test_transaction_lists.py", f"{HERE}test_transactions.py"),
        Break(
            "a broker that has joined",
            "if any(set(one.nodes.values()) != asked for one in metadata):",
            "if False:",
        ),
        Break("a coordinator that has moved", "all(_leaders(one) == first for one in metadata)", "True"),
        Break("who may not be told is believed", "bool(first) and all(", "all("),
        Break(
            "who has moved before the list", "for metadata in (before, after)", "for metadata in (before,)"
        ),
        Break(
            "a broker that has gone",
            "cluster.known_addresses() if known else []",
            "cluster.known_addresses()",
        ),
        Break("all are asked for ever", "for _ in range(LOOKS):", "while True:", hangs=True),
        Break("a name is a pattern", '_quoted(prefix) + ".*"', 'prefix + ".*"'),
        Break("older brokers list more", "if name.startswith(self._prefix)", "if True"),
        Break(
            "answers nobody has read", "            self._cluster.give_back(broker)\n", "            pass\n"
        ),
        Break(
            "what was asked ahead is not read",
            "        if asked is not None:\n            return asked\n",
            "",
        ),
        Break("what was asked ahead is read for ever", "asked, ahead = ahead, None", "asked = ahead"),
        Break("some brokers are enough", "if connected and len(connected) == len(brokers):", "if connected:"),
        Break("one answer is enough", "            found |= listed\n", "            found = listed\n"),
    ),
    *mutants_of(
        "connector/client/records/gaps.py",
        READ,
        Break("any gap is explained", 'return "compact" in policy', "return True"),
        Break("no gap is explained", 'return "compact" in policy', "return False"),
        Break(
            "what is not told is an error",
            "            return True\n        return",
            "            return False\n        return",
        ),
        Break("where it goes on is not said", "            behind=behind,\n", ""),
    ),
    *mutants_of(
        "connector/client/records/read_committed.py",
        READ,
        Break(
            "aborted rows are shown",
            "hidden.hides(records, pos, header) or header.is_control",
            "header.is_control",
        ),
        Break(
            "markers are rows",
            "hidden.hides(records, pos, header) or header.is_control",
            "hidden.hides(records, pos, header)",
        ),
        Break("a damaged batch is passed over", "if not crc_ok(records, pos, header):", "if False:"),
        Break(
            "missing offsets are not seen",
            "if missing is None and before < min(",
            "if False and before < min(",
        ),
        Break(
            "those at the end of the range are not",
            "before < min(header.base_offset, end):",
            "before < header.base_offset < end:",
        ),
        Break("hidden too late", "<= header.last_offset:", "< header.base_offset:"),
        Break(
            "hidden too early",
            "while self._coming and self._coming[-1][1] <= header.last_offset:",
            "while self._coming:",
        ),
        Break("hidden for ever", "self._now.discard(header.producer_id)", "pass"),
        Break("everybody is hidden", "if header.producer_id not in self._now:", "if not self._now:"),
        Break("rows outside of transactions are hidden", "return header.is_transactional", "return True"),
        Break("aborted transactions in disorder", ", reverse=True", ""),
        Break(
            "one damaged batch leaves all behind it out",
            "next_offset = before = max(next_offset, header.next_offset)",
            "next_offset = header.base_offset",
        ),
    ),
    *mutants_of(
        "connector/client/records/fetch.py",
        READ,
        Break("aborted rows are read", "answer.aborted if committed else None", "None"),
        Break(
            "what was aborted is hidden from all", "answer.aborted if committed else None", "answer.aborted"
        ),
        Break("open transactions are read", '"isolation_level": int(self.committed)', '"isolation_level": 0'),
        Break(
            "a replica's word counts",
            "ErrorCode.OFFSET_OUT_OF_RANGE and self._near is None",
            "ErrorCode.OFFSET_OUT_OF_RANGE",
        ),
        Break(
            "an error is no records",
            'check(part["error_code"], f"Fetch of {self.name} at {position}{advice}")',
            "pass",
        ),
        Break("another topic of the name is read", "now is not None and now != self.topic_id", "False"),
        Break(
            "old brokers are not asked for the topic's id",
            "if self.topic_id is not None and version < _BY_ID:",
            "if False:",
        ),
        Break("a wrong id is tried for ever", 'if part["error_code"] in _OTHER_TOPIC:', "if False:"),
        Break(
            "a batch that does not fit is asked for again",
            "min(self.max_bytes * 2, 1 << 30)",
            "self.max_bytes",
        ),
        Break(
            "rows before the position",
            "np.searchsorted(offsets, (start, end))",
            "np.searchsorted(offsets, (0, end))",
        ),
        Break(
            "rows behind the end",
            "np.searchsorted(offsets, (start, end))",
            "np.searchsorted(offsets, (start, 1 << 62))",
        ),
        Break("the position is not moved on", "            position = seen.next_offset\n", "", hangs=True),
        Break("no records for ever", "if self._backoff.over:", "if False:", hangs=True),
        Break(
            "the wrong partition's records",
            'if named and part["partition_index"] == self.partition:',
            "if named:",
        ),
        Break(
            "the wrong topic's records",
            'if named and part["partition_index"] == self.partition:',
            'if part["partition_index"] == self.partition:',
        ),
    ),
]
