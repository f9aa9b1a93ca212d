"""Rules of the broker and of its log, each broken: a promise to clients or to the disk."""

from tests.mutants.mutant import Break, Mutant, mutants_of

B = "tests/broker/"
LOG = f"{B}log/"
SECURITY = f"{B}security/"
RIGHTS = (f"{SECURITY}test_authorize.py", f"{SECURITY}test_acl_rules.py")
LOGINS = (f"{SECURITY}test_logins.py", f"{SECURITY}test_sasl_clients.py", f"{SECURITY}test_listeners.py")  # fmt: skip
CHANGES = (f"{SECURITY}test_listeners.py", f"{B}admin/test_admin_configs.py")
COORDINATOR = (f"{B}coordinator/transactions/test_transaction_coordinator.py", f"{B}coordinator/transactions/test_transaction_tables_wire.py", f"{B}coordinator/transactions/test_transaction_shell_model.py")
MACHINE = (f"{B}network/test_wire_machine.py",)
RETURN = (f"{LOG}test_log_return.py",)
GROUPS_RETURN = (f"{B}coordinator/groups/test_group_shell.py",)
HERE = "tests/broker/log/"
CRASH = (f"{HERE}test_log_flush.py", f"{HERE}test_log_crash_model.py", f"{HERE}test_log_files.py")
RECOVERY = (f"{HERE}test_log_recovery.py", f"{HERE}test_log_crash_model.py", f"{HERE}test_log_progress.py")
DAMAGE = (f"{HERE}test_log_damage.py", f"{HERE}test_log_read.py")
COMPACTION = (f"{HERE}test_log_compaction.py", f"{HERE}test_log_upkeep_model.py")
TRIMMING = (f"{HERE}test_log_retention.py", *COMPACTION)
BATCHES = ("tests/broker/handlers/test_hostile_batches.py", f"{HERE}test_log_append.py")
FILES = (f"{HERE}test_log_files.py",)
BACKUP = (f"{HERE}test_log_backup.py",)

MUTANTS: list[Mutant] = [
    # A partition that comes back
    *mutants_of(
        RETURN, Break("what no sync made safe is read back", "_cut", "file.truncate(size)\nfile.sync()", "pass"), Break("nobody asks whether the disk takes more", "prepare", "file.write([bytes(PROBE_BYTES)], 0) < PROBE_BYTES", "False")
    ),
    *mutants_of(
        RETURN,
        Break("a job of before writes on", "Partition.begin_return", "self.progress.is_running or self.durability.is_busy", "self.durability.is_busy"),
        Break("with page cache durability the end is cut, too", "Partition.begin_return", "not self.durability.lazy and len(log.segments)", "len(log.segments)"),
        Break("a partition that was closed meanwhile is open again", "Partition.end_return", "self._log.closed", "False"),
        Break("who reads is not told", "Partition.end_return", "self._watch.notify()", "pass"),
        Break("a damaged log is tried again and again", "Upkeep.bring_back", "partition.stay_offline(str(error))", "pass"),
        Break("why it stays offline is said each time", "Upkeep._stays", "self._refusals.get(partition) != str(error)", "True"),
    ),
    *mutants_of(
        (*RETURN, f"{LOG}test_log_damage.py"),
        Break(
            "who could not be opened stays offline for ever", "open_partition", "_offline(fs, place, settings, flush, checkpoints, known, str(error), may_return=True)", "_offline(fs, place, settings, flush, checkpoints, known, str(error))"
        ),
        Break("the recovery point of who could not be opened is forgotten", "_offline", "known.recovery_point", "0"),
        Break("what was compacted is damage when nobody knows", "open_partition", "checkpoints.cleaned_forgotten", "False"),
    ),
    *mutants_of(
        GROUPS_RETURN,
        Break("offsets that were refused are told", "GroupCoordinator.read_again", "self._offsets.unload(partition)", "pass"),
        Break("who waits in a group waits on", "GroupCoordinator.read_again", "self._members.unload(partition)", "pass"),
        Break("members that were refused stay", "GroupCoordinator.read_again", "self.consumers.unload(partition)", "pass"),
        Break("what the log says is not read", "GroupCoordinator.read_again", "self._journal.replay(partition, self._read)", "pass"),
        Break("sessions do not begin again", "GroupCoordinator.read_again", "self.consumers.start(partition)", "pass"),
    ),
    *mutants_of(
        COORDINATOR, Break("ids that were never recorded stay", "read_again", "not entry.busy and said.get(entry.id) is None", "False"), Break("ids stay uncertain", "read_again", "metadata is not None and (not entry.busy)", "False")
    ),
    *mutants_of(COORDINATOR, Break("a stranger's epoch is taken", "TransactionCoordinator.check_plain", "newest is not None and epoch > newest", "False")),
    *mutants_of(COORDINATOR, Break("what is known again stays lost", "TransactionEntry.take_over", "self.metadata, self._lost = (metadata, None)", "self.metadata = metadata")),
    *mutants_of(
        COORDINATOR,
        Break("a partition under a later epoch holds the id", "MarkerWriter._mark", "_is_superseded(partition, metadata.producer_id, error)", "False"),
        Break("a marker is left out where a transaction is open", "_is_superseded", "error.code is ErrorCode.INVALID_PRODUCER_EPOCH and partition.ongoing(producer_id) is None", "error.code is ErrorCode.INVALID_PRODUCER_EPOCH"),
    ),
    # What is durable before it counts
    *mutants_of(
        COORDINATOR,
        Break("producer ids are used before their block is on the disk", "ProducerIds._reserve", "write_whole(self._fs, self._path, f'{_HEAD}{end}\\n'.encode())", "pass"),
        Break("an id that a log knows is given out again", "ProducerIds.above", "self._next = self._end = used + 1", "self._end = used + 1"),
    ),
    *mutants_of(
        (*RIGHTS, "tests/broker/admin/test_admin_stored.py"),
        Break("access rules count before they are on the disk", "Authorizer._change", "files.write_whole(self._fs, self._path, encode(acls))", "self.acls = acls\nfiles.write_whole(self._fs, self._path, encode(acls))"),
        Break("what was decided before a change holds on", "Authorizer._change", "self._decided.clear()", "pass"),
        Break("who names itself like a super user is one", "Authorizer.allows", "client.principal", "client.principal.lower()"),
    ),
    *mutants_of(
        (*LOGINS, "tests/broker/admin/test_admin_stored.py"),
        Break(
            "credentials count before they are on the disk", "Credentials.change", "files.write_whole(self._fs, self._path, encode(changed), private=True)", "self._known = changed\nfiles.write_whole(self._fs, self._path, encode(changed))"
        ),
    ),
    *mutants_of(
        ("tests/broker/admin/test_admin_stored.py",),
        Break(
            "configs count before they are on the disk",
            "ConfigStore.put",
            "try:\n"
            "    files.write_whole(self._fs, self.path, data, private=True, reserve=self.reserve)\n"
            "except OSError as error:\n"
            "    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f'the configs of {kind} {name!r} are as they were: {self.path}: {error}') from error",
            "self._kinds[kind] = changed\n"
            "try:\n"
            "    files.write_whole(self._fs, self.path, data, private=True, reserve=self.reserve)\n"
            "except OSError as error:\n"
            "    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f'the configs of {kind} {name!r} are as they were: {self.path}: {error}') from error",
        ),
        Break(
            "everybody may read passwords of key stores",
            "ConfigStore.put",
            "files.write_whole(self._fs, self.path, data, private=True, reserve=self.reserve)",
            "files.write_whole(self._fs, self.path, data, reserve=self.reserve)",
            CHANGES,
        ),
    ),
    *mutants_of(
        CHANGES,
        Break(
            "an authority that was removed stays trusted",
            "ListenerTls.follow",
            "self.context = ListenerTls(self._listener, self._config).context",
            "self._load_key(self._store('ssl.keystore'))\nself._load_trusted(self._store('ssl.truststore'))",
        ),
        Break("a store that cannot be read is taken", "ListenerTls.check", "ListenerTls(self._listener, wanted)", "pass"),
        Break("the stores are those of the start", "_option", "own_options(config, listener.name)", "listener.own"),
    ),
    *mutants_of(("tests/broker/test_fairness.py",), Break("an unknown machine ends the broker", "_addresses", "OSError", "KeyError")),
    *mutants_of(
        CHANGES,
        Break("a listener has no limit before a handshake", "ConnectionCounts.why_full", "place.count >= place.most", "False"),
        Break("a listener has no limit", "ConnectionCounts.enter", "place.open > place.most", "False"),
        Break("a listener has no pace", "ConnectionCounts.wait", "place.pace.wait(now, place.rate)", "0.0"),
        Break(
            "trusted certificates are told",
            "SecurityOptions",
            "option('', 'ssl.truststore.certificates', 'trusted certificates themselves, in place of a file', secret=True)",
            "option('', 'ssl.truststore.certificates', 'trusted certificates themselves, in place of a file')",
        ),
        Break("what a listener needs a restart for is taken", "DynamicOptions._check_of_listener", "not found.dynamic", "False"),
        Break("one broker's key store is every broker's", "DynamicOptions._check_of_listener", "name == EVERY_BROKER and (not found.limit)", "False"),
        Break("options of a listener that is gone forbid all others", "DynamicOptions._candidate", "not self._is_left(name, option)", "True"),
    ),
    *mutants_of(
        (f"{B}admin/test_admin_configs.py",),
        Break("what only a restart changes is taken and ignored", "_check_kept", "read_only(option) or meaning(option) != option", "meaning(option) != option"),
        Break("no value of an option without effect is checked", "_check_kept", "rule.parse(value)", "pass"),
    ),
    *mutants_of((f"{B}admin/test_admin_configs.py",), Break("what the start gave is a default", "_set_for", "option in given", "False")),
    # Who is who
    *mutants_of(
        (f"{SECURITY}test_logins.py",),
        Break("every realm is the own one", "local_name", "first if where == realm else None", "first"),
        Break("a name may look like another realm's principal", "local_name", "re.search('[/@]', name) or not name", "not name"),
        Break("a rule is for principals of any length", "_applied", "len(values) - 1 != rule.parts", "False"),
    ),
    *mutants_of(
        LOGINS,
        Break("the nonce is not compared", "ScramExchange._final", "not hmac.compare_digest(found[2], self._nonce)", "False"),
        Break("the channel binding is not compared", "ScramExchange._final", "bound != self._gs2.encode()", "False"),
        Break("a salt that changes tells who is unknown", "_salt_of", "hmac.digest(_DECOY, user.encode(), 'sha256')[:16]", "secrets.token_bytes(16)"),
        Break("acting for another is possible by SCRAM", "ScramExchange._first", "head[3] and _name(head[3]) != self._user", "False"),
        Break("any proof holds", "ScramExchange._final", "proof_holds(self._mechanism, known, signed, proof)", "proof"),
        Break("an empty password is one", "PlainExchange.step", "not user or not password", "not user"),
        Break("any password fits", "PlainExchange.step", "not self._passwords.fits(user, password)", "False"),
        Break("acting for another is possible by PLAIN", "PlainExchange.step", "authorization_id not in ('', user)", "False"),
        Break("the issuer is not looked at", "TokenValidator.user_of", "config.security.oauth_issuer or None", "None"),
        Break("the audience is not looked at", "TokenValidator.user_of", "bool(self._audience)", "False"),
        Break(
            "a token never expires",
            "TokenValidator.user_of",
            "{'require': ['exp', config.security.oauth_subject_claim], 'verify_aud': bool(self._audience), 'verify_sub': False}",
            "{'verify_exp': False, 'require': ['exp', config.security.oauth_subject_claim], 'verify_aud': bool(self._audience), 'verify_sub': False}",
        ),
        Break("a session outlives its token", "TokenValidator.user_of", "max(1, int((claims['exp'] - time.time()) * 1000))", "0"),
        Break("acting for another is possible by OAUTHBEARER", "OauthExchange.step", "found[1] and found[1].decode('utf-8', 'replace') != user", "False"),
        Break("a session is renewed by another", "SaslMechanisms.step", "session.principal != f'User:{step.user}'", "False"),
        Break("who failed may go on", "SaslMechanisms.step", "session.state, session.exchange = (AuthenticationState.FAILED, None)", "session.exchange = None"),
        Break("a failure is told at once", "SaslMechanisms.step", "await asyncio.sleep(self._config.security.failed_authentication_delay_ms / 1000)", "pass"),
    ),
    *mutants_of(
        (*LOGINS, f"{SECURITY}test_tls.py"),
        Break("old versions of TLS are spoken", "ListenerTls.__init__", "self.context.minimum_version, self.context.maximum_version = self._versions()", "self._versions()"),
        Break("nobody needs a certificate", "ListenerTls.__init__", "self.context.verify_mode = _AUTH[auth]", "pass"),
    ),
    *mutants_of(
        ("tests/broker/security/test_tls.py",),
        Break("the default type is what it says", "_kind", "base == option_table()[name].default", "False"),
        Break("the type is what the file is", "_kind", "given.strip().upper() if given else None", "None"),
        Break("the store's password is not that of the PEM", "ListenerTls._load_key", "store.password or ''", "''"),
    ),
    # What a fault is answered
    *mutants_of(
        (f"{B}network/test_server_connection.py", "tests/protocol/test_errors.py"),
        Break("a code that would be misread is told", "error_of_all", "None if key in MISREAD else _of_all(key, version, code, message)", "_of_all(key, version, code, message)"),
        Break("what is asked for gets no error", "_part", "own or _parts(struct, version, asked, code, message)", "_parts(struct, version, asked, code, message)"),
        Break("an offset stands beside an error", "_own", "field.name in _NOTHING", "False"),
    ),
    *mutants_of(
        (f"{B}network/test_server_connection.py",),
        Break("a fault that cannot be told leaves the client waiting", "Connection._fault", "error_answer is None", "False"),
        Break("an answer that does not fit leaves the client waiting", "Connection._filled", "parts is None", "False"),
        Break("it is read on whatever is held", "Connection.advance", "machine.has_room and memory.may_read(self, machine.held_requests, machine.missing)", "memory.may_read(self, machine.held_requests, machine.missing)", hangs=True),
        Break("a request with effects to come holds up nobody", "Connection._await", "not isinstance(answer, Settled)", "False", hangs=True),
        Break("who has gone holds what it sent", "Connection.connection_lost", "self._account()", "pass", hangs=True),
        Break("requests begin while the broker stops", "Connection.finish", "self.machine.drain()", "pass", hangs=True),
        Break("nobody notices that a client does not read", "Connection.pause_writing", "self.machine.writable = False\nself._writable.clear()", "pass", hangs=True),
    ),
    # The order, the bounds and the life of a connection
    *mutants_of(
        MACHINE,
        Break("a request with effects to come holds up nobody", "WireMachine._may_begin", "self._blocker is None", "True"),
        Break("whatever ends lets the next begin", "WireMachine.fill", "slot is self._blocker", "True"),
        Break("any number is in flight", "WireMachine._may_hold", "len(self._line) < MAX_IN_FLIGHT", "True"),
        Break("requests in flight are not counted", "WireMachine._may_hold", "self._line_requests + self._line_answers", "self._line_answers"),
        Break("answers in flight are not counted", "WireMachine._may_hold", "self._line_requests + self._line_answers", "self._line_requests"),
        Break(
            "who is mute begins",
            "WireMachine._may_hold",
            "len(self._line) < MAX_IN_FLIGHT and self._line_requests + self._line_answers < MAX_HELD_BYTES and (not self.muted)",
            "len(self._line) < MAX_IN_FLIGHT and self._line_requests + self._line_answers < MAX_HELD_BYTES",
        ),
        Break(
            "who does not read gets more",
            "WireMachine._may_begin",
            "self._blocker is None and self.writable and self._may_hold() and (not (answers_short and self.held_answers))",
            "self._blocker is None and self._may_hold() and (not (answers_short and self.held_answers))",
        ),
        Break(
            "who holds answers gets more while they are short",
            "WireMachine._may_begin",
            "self._blocker is None and self.writable and self._may_hold() and (not (answers_short and self.held_answers))",
            "self._blocker is None and self.writable and self._may_hold()",
        ),
        Break("who holds none gets none while answers are short", "WireMachine._may_begin", "answers_short and self.held_answers", "answers_short"),
        Break("requests begin in the reverse order", "WireMachine.next_frame", "self._backlog.popleft", "self._backlog.pop"),
        Break("it is read on while a request waits", "WireMachine.has_room", "not self._backlog and self._may_hold()", "self._may_hold()"),
        Break("bytes come after the end", "WireMachine.receive", "if self.phase is not OPEN:\n    return", "pass"),
        Break("half a frame outlives its connection", "WireMachine._forget", "self._reader = FrameReader(0)", "pass"),
        Break("what has not begun outlives its connection", "WireMachine._forget", "self._backlog.clear()", "pass"),
        Break("answers leave after the end", "WireMachine._forget", "self.sends = False", "pass"),
        Break("no answer leaves while it drains", "WireMachine._forget", "phase is not DRAINING", "True"),
        Break("a closed connection drains", "WireMachine.drain", "self.phase is OPEN", "True"),
        Break("who has gone comes back", "WireMachine.close", "self.phase is not LOST", "True"),
        Break("we wait for who has gone", "WireMachine.lose", "self.writable = True", "pass"),
        Break("small answers overtake large ones", "WireMachine.leave", "chain((self.flush(),) if self._small else (), joined(slot.parts))", "joined(slot.parts)"),
        Break("small answers pile up", "WireMachine.leave", "(self.flush(),) if self._small_bytes > JOIN_BELOW else ()", "()"),
        Break("who waits for an answer is idle", "WireMachine.look", "self._line and self.writable", "False"),
        Break("who does not read its answers waits for us", "WireMachine.look", "self._line and self.writable", "self._line"),
        Break("who does not read is cut at any time", "WireMachine.look", "not_reading and shortage.answers_short", "not_reading"),
        Break("who does not read is never cut", "WireMachine.look", "not_reading and shortage.answers_short", "False"),
        Break("who sends slowly is cut at any time", "WireMachine.look", "shortage.requests_short and self._holds_up_others and (timer.since_received(now) > stalled)", "self._holds_up_others and timer.since_received(now) > stalled"),
        Break("who waits for others is cut", "WireMachine._holds_up_others", "self.unbegun > SMALL and (self.reading or bool(self._backlog))", "self.unbegun > SMALL"),
        Break("who holds little is cut", "WireMachine._holds_up_others", "self.unbegun > SMALL and (self.reading or bool(self._backlog))", "self.reading or bool(self._backlog)"),
        Break("the rest after the end waits for ever", "WireMachine.look", "CloseReason.NOT_READING_AFTER_CLOSE if not_reading else None", "None"),
        Break("any request waits for data", "WireMachine.waits_for_data", "first is not None and first.header.api_key == ApiKey.FETCH and (first.answer is not None)", "first is not None and first.answer is not None"),
        Break("frames of a stranger may be large for ever", "WireMachine.allow", "self._reader.max_size = max_size", "pass"),
    ),
    # Who may do what
    *mutants_of(
        RIGHTS,
        Break("transactional batches need no right to their id", "_transactional_id", "not _has_transactional(asked.request)", "True"),
        Break(
            "a transactional batch needs no id",
            "_transactional_id",
            "transactional_id is not None and asked.may(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)",
            "transactional_id is None or asked.may(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)",
        ),
        Break("followers need no right", "fetch.access", "if asked.may_cluster(AclOperation.CLUSTER_ACTION):\n    return None", "return None"),
        Break("who reads may write", "produce.access", "AclOperation.WRITE", "AclOperation.READ"),
        Break("groups are listed to everybody", "list_groups.access.restore", "asked.may(AclOperation.DESCRIBE, ResourceType.GROUP, group['group_id'], log=False)", "True"),
        Break("a group tells topics that may not be seen", "_hidden", "all((asked.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name, log=False) for name in names))", "True"),
        Break("all offsets are told", "_visible", "asked.may(AclOperation.DESCRIBE, ResourceType.TOPIC, asked.topic_name(topic) or '', log=False)", "True"),
        Break("two-phase commit needs no right", "init_producer_id", "not asked.request['enable2_pc']", "True"),
        Break("a transaction tells topics that may not be seen", "describe_transactions.access.restore", "asked.may(AclOperation.DESCRIBE, ResourceType.TOPIC, topic['topic'], log=False)", "True"),
        Break("ids are listed to everybody", "list_transactions.access.restore", "asked.may(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, state['transactional_id'], log=False)", "True"),
        Break("markers need no right", "write_txn_markers", "asked.may_cluster(AclOperation.ALTER, log=False) or asked.may_cluster(AclOperation.CLUSTER_ACTION)", "True"),
        Break("partitions need no right to their topic", "add_partitions_to_txn", "denied = {t['name'] for t in topics if not asked.may_topic(AclOperation.WRITE, t['name'])}", "denied: set[str] = set()"),
    ),
    # Who waits for whom
    *mutants_of((f"{B}test_fairness.py",), Break("nothing is kept for those who hold nothing", "Memory.no_room", "self._answer_limit + self._answer_reserve", "self._answer_limit")),
    *mutants_of(
        (f"{B}network/test_server_steps.py", f"{B}network/test_server_connection.py"),
        Break("many things are served at once", "serve", "_FIRST", "len(everything)"),
        Break("one thing is told a thousand times", "_apart", "parts.same is not None", "False"),
        Break("large requests are read while others wait", "is_large", "size > LARGE and key != ApiKey.PRODUCE", "False"),
    ),
    *mutants_of(
        (f"{B}network/test_server_steps.py",),
        Break("all that is asked for is read in one round", "handle", "context.broker.memory.answers_short or fetch.is_long or context.broker.turns.has_read_enough", "context.broker.memory.answers_short or fetch.is_long"),
    ),
    *mutants_of(
        (f"{B}rules/test_fetch_session.py",),
        Break("a new session follows any number", "FetchSessions._begin", "self._follow_too_many()", "False"),
        Break("a session grows to any number", "FetchSessions.wanted", "request['topics'] and self._follow_too_many()", "False"),
    ),
    *mutants_of(
        (f"{SECURITY}test_tls.py",), Break("handshakes begin all at once", "TlsAcceptor._accept", "await asyncio.sleep(0)", "pass"), Break("buffers are Python's", "TlsAcceptor.open", "sslproto.SSLProtocol.max_size = BUFFER", "pass")
    ),
    *mutants_of((f"{B}test_fairness.py",), Break("in the midst of large requests", "GarbageWatch.is_time", "busy", "False"), Break("Python looks as well", "watch_garbage", "gc.set_threshold(youngest, middle, _NEVER)", "pass")),
    *mutants_of(
        ("tests/console/test_console_http.py",),
        Break(
            "what is no request fills the log",
            "Console._serve",
            "web.AppRunner(pages.app, access_log=None, logger=_requests, handle_signals=False, keepalive_timeout=15, shutdown_timeout=1.0)",
            "web.AppRunner(pages.app, access_log=None, handle_signals=False, keepalive_timeout=15, shutdown_timeout=1.0)",
        ),
    ),
    *mutants_of(
        ("tests/console/test_console_security.py",),
        Break("a console that lets nobody in", "_check_logins", "{name.strip() for name in mechanisms.split(',')} - {''} == {'GSSAPI'}", "{name.strip() for name in mechanisms.split(',')} == {'none'}"),
        Break("a mechanism with a comma behind it is another", "_check_logins", "{name.strip() for name in mechanisms.split(',')} - {''}", "{name.strip() for name in mechanisms.split(',')}"),
    ),
    *mutants_of(
        FILES,
        Break("a sync does nothing", "OsFile.sync", "os.fdatasync(self._fd)", "pass"),
        Break("a sync of a directory does nothing", "OsFileSystem.sync_dir", "os.fsync(fd)", "pass"),
        Break("a lock that two may have", "OsFileSystem.lock", "fcntl.LOCK_EX", "fcntl.LOCK_SH"),
        Break("short reads are not continued", "OsFile.read", "have < size", "False"),
    ),
    *mutants_of(
        (f"{HERE}test_log_files.py", f"{HERE}test_log_crash_model.py", *COMPACTION),
        Break("small files are not synced", "write_whole", "if sync:\n    file.sync()", "pass"),
        Break("nor their names", "write_whole", "if sync_dir:\n    fs.sync_dir(os.path.dirname(path))", "pass"),
        Break("half a small file is taken for whole", "write_whole", "file.write([data], 0) != len(data)", "file.write([data], 0) < 0"),
    ),
    *mutants_of(
        BATCHES,
        Break("the header's largest time is believed", "as_stored", "walked.latest", "header.max_timestamp"),
        Break("every bit is the client's to set", "as_stored", "header.attributes & (CODEC_MASK | TRANSACTIONAL)", "header.attributes"),
        Break("a time set by the broker, from a client", "check_walked", "header.log_append_time", "False"),
        Break("records may be ahead", "_is_untimely", "walked.latest > now_ms + settings.timestamp_after_max_ms", "False"),
        Break("any codec is known", "check_client", "header.codec not in compression.NAMES", "False"),
        Break("bytes after the batch", "header_of", "header.size < len(batch)", "False"),
    ),
    *mutants_of(
        ("tests/protocol/test_batch.py",),
        Break("a length that fits the whole is taken for all", "_one_chain", "if _leads(found.stops, starts, end):\n    return found", "if True:\n    return found"),
        Break("a chain that leads elsewhere", "_one_chain", "not _leads(found.stops, starts, end)", "False"),
    ),
    *mutants_of(
        ("tests/protocol/test_batch.py", *BATCHES),
        Break("numbers may be any", "walk.walk", "strays", "strays & False"),
        Break("headers are not looked at", "walk.walk", "records.headers()", "pass"),
        Break("equally long records are not compared", "_look_alike", "_refuse(columns[place - at] != view[place])", "pass"),
        Break("nor are their numbers", "_look_alike", "_refuse(columns[number_at - at + step] != wanted[step])", "pass"),
        Break("numbers of uneven records may be any", "_look", "_refuse((head ^ wanted) & mask)", "pass"),
        Break("their lengths may be any", "_look", "_refuse(lengths.view(np.int64) != nexts - begins << 1)", "pass"),
        Break("values may end anywhere", "_look", "_refuse(nexts - ends != 1)", "pass"),
        Break("headers that are not there", "_look", "_refuse(data.take(ends))", "pass"),
        Break("numbers are cut", "_numbers", "(three & words >> 23).any()", "False"),
        Break("heads are cut", "_look", "rows.stop > _RUNS[1].stop", "False"),
        Break("lz4 that only some clients read", "walk.walk", "header.codec == compression.CODECS['lz4']", "False"),
    ),
    *mutants_of(
        (*CRASH, f"{HERE}test_log_recovery.py", f"{HERE}test_log_progress.py"),
        Break(
            "a snapshot comes before the transaction index is synced",
            "ActiveSegment.roll",
            "self._durability.sync_here([old.transactions.sync])",
            "pass",
        ),
        Break(
            "a roll does not sync the indexes",
            "ActiveSegment.roll",
            "sync_and_close(file)",
            "file.close",
        ),
        Break("a roll does not sync the log", "ActiveSegment.roll", "[old.file.sync, *(sync_and_close(file) for file in saved)]", "[*(sync_and_close(file) for file in saved)]"),
        Break(
            "a new segment's name is not synced",
            "ActiveSegment.roll",
            "log.fs.sync_dir(log.directory)",
            "pass",
        ),
        Break("a roll with unsynced bytes before it", "Durability.seal", "self.lazy", "True"),
        Break(
            "the recovery point is the log's end",
            "Durability.end_flush",
            "offset",
            "self._log.end",
        ),
        Break("what is written is shown", "Durability._advance", "self.lazy", "True"),
        Break("a waiter at the mark is let go", "Durability.wait", "offset < self.high_watermark", "offset <= self.high_watermark"),
        Break(
            "what a failed sync left stays",
            "Durability._sync_failed",
            "self._log.segments.active.file.truncate(self.synced_size)",
            "pass",
        ),
        Break("a failed sync is none", "Durability.end_flush", "error is not None", "False"),
        Break("what came during a sync is synced", "Durability.end_flush", "size", "segment.size"),
        Break("waiters are not refused", "Durability._go_offline", "self._watch.refuse(self._log.storage_error())", "pass", hangs=True),
        Break("an offline partition is served", "Log.check_online", "self.offline is not None", "False"),
        Break("any log may have gaps", "Log.has_gaps", "self.checkpoints.cleaned.knows(self.topic, self.index)", "True", DAMAGE),
        Break("no log may have gaps", "Log.has_gaps", "self.checkpoints.cleaned.knows(self.topic, self.index)", "False", DAMAGE),
        Break("the new start is not noted", "Log.begin_at", "self.checkpoints.starts.put(self.topic, self.index, offset)", "pass", TRIMMING),
    ),
    *mutants_of(
        CRASH,
        Break("an error of a sync is dropped", "_run", "error = failure", "pass"),
        Break("a job after a failed one is run", "_run", "jobs", "reversed(jobs)"),
        Break("a file closes under a sync", "GroupFlush.when_free", "partition in self._busy", "False"),
        Break("one partition is flushed twice at once", "GroupFlush._kick", "[p for p in self._dirty if p not in self._busy]", "[p for p in self._dirty]"),
        Break("an orderly end leaves marks", "GroupFlush.stop", "self._dirty or self._busy", "self._busy", hangs=True),
    ),
    *mutants_of(
        (*RECOVERY, f"{HERE}test_log_damage.py"),
        Break(
            "no valid batch is looked for",
            "_Recovery._cut",
            "found = find_valid(file, start, end, offset)\n"
            "if found is not None:\n"
            "    follows = f'offset {found[1]} is in {file.path} at {found[0]}'\n"
            "    reason = f'{damage.reason}; but a valid batch of {follows}'\n"
            "    raise self._damaged(segment, position, offset, reason)",
            "if (found := None) is not None:\n    follows = f'offset {found[1]} is in {file.path} at {found[0]}'\n    reason = f'{damage.reason}; but a valid batch of {follows}'\n    raise self._damaged(segment, position, offset, reason)",
        ),
        Break("a rebuilt index is not synced", "load_producers", "segment.transactions.sync()", "pass"),
        Break("older batches count as well", "_plausible", "fits and header.base_offset >= offset", "fits"),
        Break("the order of offsets is not looked at", "_Recovery._recover", "header.base_offset < segment.next_offset or (header.base_offset > segment.next_offset and (not gaps))", "False"),
        Break("gaps in the last segment", "_Recovery._recover", "index + 1 < len(self._segments)", "True"),
        Break("what was safely written is cut off", "_Recovery._cut", "offset < self._point", "False"),
        Break("a log that is too short is taken", "_Recovery.run", "last.next_offset < self._point", "False"),
        Break(
            "segments with batches are dropped",
            "_Recovery._drop_after",
            "found = find_valid(segment.file, 0, segment.size, end)\nif found is not None:\n    reason = f'segment starts at offset {segment.base_offset}, but the one before ends at {end}'\n    raise self._damaged(segment, 0, end, reason)",
            "if (found := None) is not None:\n    reason = f'segment starts at offset {segment.base_offset}, but the one before ends at {end}'\n    raise self._damaged(segment, 0, end, reason)",
        ),
        Break("a first segment may be missing", "open_segments", "bases[0] > log_start", "False"),
        Break("the end is not compared", "_trusted", "segments[-1].next_offset == end", "True"),
        Break("a torn tail stays", "_Recovery._cut", "segment.file.truncate(position)", "pass"),
        Break("snapshots past the end are used", "_from_snapshot", "offset <= end", "True"),
        Break("bad snapshots stay", "_from_snapshot", "fs.remove(path)\nremoved = True", "pass"),
        Break("what was cut off comes back", "_Recovery.run", "segment.file.sync()", "pass"),
        Break("deleted segments come back", "open_segments", "below_start(bases, log_start)", "0"),
    ),
    *mutants_of(
        (f"{HERE}test_log_topics.py", "tests/broker/operations/test_server_process.py", f"{HERE}test_log_read.py"),
        Break("the epoch of a copy that runs is taken too", "DataDir._take", "False", "True"),
        Break("the clean mark stays", "DataDir._take_clean_mark", "self._fs.remove(path)\nself._fs.sync_dir(self.path)", "pass"),
        Break("its removal is not synced", "DataDir._take_clean_mark", "self._fs.sync_dir(self.path)", "pass"),
        Break("another node's directory is taken", "DataDir._load_meta", "values.get('node.id') != str(node_id)", "False"),
        Break(
            "torn starts are begun anew",
            "DataDir._load_checkpoints",
            "try:\n"
            "    starts = OffsetCheckpoint(self._fs, self.file(files.LOG_STARTS), self.reserve)\n"
            "except files.BadFile as error:\n"
            "    raise DataDirError(f'{error}; without it deleted records may be visible again until retention removes them') from error",
            "try:\n"
            "    starts = OffsetCheckpoint(self._fs, self.file(files.LOG_STARTS), self.reserve)\n"
            "except ZeroDivisionError as error:\n"
            "    raise DataDirError(f'{error}; without it deleted records may be visible again until retention removes them') from error",
        ),
    ),
    *mutants_of(
        DAMAGE,
        Break("batches in a wrong order", "check_follows", "base < before", "False"),
        Break("gaps that no compaction left", "check_follows", "base > before and (not gaps)", "False"),
        Break("a wrong CRC on the way to readers", "good", "not crc_ok(data, at, header)", "False"),
        Break("a wrong CRC in a scan", "batches", "not crc_ok(buffer, at, header)", "False"),
        Break("what comes behind damage is handed out", "good", "data[:end]", "data"),
        Break("a segment that ends early is passed over", "Segments.read", "raise self._ends_early(segment, offset)", "return (b'', bound)"),
        Break("a gap before the first batch", "Segments.read", "header.base_offset > offset", "False"),
        Break("nothing is checked on the way to readers", "Segments.read", "segment.checked", "True"),
        Break("a scan passes over an early end", "Segments.batches", "segment is not self.active and before < segment.next_offset", "False"),
        Break("a scan passes over gaps", "Segments.batches", "header.base_offset >= start", "False"),
        Break("an aborted transaction of a later segment", "Segments.aborted", "if complete:\n    break", "break"),
    ),
    *mutants_of(
        (*DAMAGE, f"{HERE}test_log_recovery.py"),
        Break("what is opened counts as checked", "Segment.open", "segment.size, segment.checked = (file.size(), False)", "segment.size = file.size()"),
        Break("a saved index is not held against its batch", "Segment.resume", "header.last_offset != last", "False"),
        Break("an index of another segment is taken", "Segment._load_indexes", "self.size and (not indexes.times)", "False"),
    ),
    *mutants_of(
        DAMAGE,
        Break("it is read again and again", "Scrubber._check", "segment.checked = True", "pass"),
        Break("damaged segments are read again and again", "Scrubber._check", "segment.damage = str(error)", "pass"),
        Break("an early end is whole", "check", "one.end is not None and before < one.end", "False"),
        Break("gaps are whole", "check", "check_follows(one.path, position, header, before, gaps=one.gaps)", "pass"),
        Break("what retention took is damage", "Scrubber._check", "not partition.has(segment)", "False"),
        Break("as fast as it can", "Pause.__call__", "max(0.0, self._due - now)", "0"),
        Break("zero is a rate", "Scrubber.scrub", "not rate", "False"),
        Break("the active segment must end where it was to", "PartitionReads.unchecked_segments", "segment is self._log.segments.active", "False"),
        Break("damage is a storage error", "PartitionReads._unreadable", "ErrorCode.CORRUPT_MESSAGE", "ErrorCode.KAFKA_STORAGE_ERROR"),
        Break("what was deleted is read", "PartitionReads.read", "self._log.start <= offset <= self._log.end", "0 <= offset <= self._log.end", (f"{HERE}test_log_retention.py",)),
    ),
    *mutants_of(
        TRIMMING,
        Break("records above the mark are deleted", "Trimming.delete_records", "0 <= wanted <= mark", "0 <= wanted"),
        Break("records without a time never go", "Trimming._newest", "self._log.fs.written_ms(segment.path)", "2 ** 63"),
        Break("files go before the start is noted", "Trimming.retain", "self._log.begin_at(start)", "pass"),
    ),
    *mutants_of(
        COMPACTION,
        Break("gaps that nobody announced", "Compacting.take_over", "not self._log.has_gaps", "False"),
        Break("undecided records are compacted", "Compacting._cleanable_end", "self._producers.last_stable_offset", "self._log.end"),
        Break("what is not durable is compacted", "Compacting._cleanable_end", "min(self._log.segments.active.base_offset, stable, self._durability.recovery_point)", "min(self._log.segments.active.base_offset, stable)"),
        Break("segments that are not there any more", "Compacting.take_over", "not self._log.usable or not self._log.segments.holds(old)", "not self._log.usable"),
        Break("a compacted log is not synced", "CleaningRun._make_durable", "new.file.sync()", "pass"),
        Break("nor its transaction index", "CleaningRun._make_durable", "new.transactions.sync()", "pass"),
        Break("aborted transactions are forgotten", "CleaningRun._of_batch", "new.transactions.append(entry)", "pass"),
        Break("an abort reaches beyond its marker", "TransactionEndings.is_aborted", "not found.reaches(header)", "False"),
        Break("the commit of a compaction is not synced", "commit", "fs.sync_dir(directory)", "pass"),
        Break("old segments are not durably away", "take_out", "fs.sync_dir(directory)", "pass"),
        Break("a compaction that was not taken over counts", "_end_compaction", "fs.exists(log + files.CLEANED)", "False"),
        Break("old segments stay beside the new one", "_end_compaction", "fs.exists(log + files.SWAP)", "False"),
    ),
    *mutants_of(
        (f"{HERE}test_log_recovery.py", f"{HERE}test_log_files.py", f"{HERE}test_log_append.py"),
        Break("a torn snapshot is believed", "decode", "crc != crc32c([data[_CRC_FROM:]])", "False"),
        Break("only the last batch is kept", "encode", "state.batches", "state.batches[-1:]"),
    ),
    *mutants_of(
        (*COMPACTION, *CRASH),
        Break("a new segment takes the index that it finds", "SegmentFiles.create", "self.fs.remove(self.path(TXN_INDEX))", "pass"),
    ),
    *mutants_of(
        (f"{HERE}test_log_recovery.py", f"{HERE}test_log_read.py"),
        Break("an index past its segment is taken", "SparseIndex.load", "values[-1] < value_below", "True"),
        Break("what a kill leaves is taken for durable", "TransactionIndex.load", "self._dirty = True", "pass", CRASH),
        Break("aborts of a whole segment are cut off", "TransactionIndex.load", "ended", "False", CRASH),
        Break("aborts that a crash undid stay", "TransactionIndex.load", "entry.last_offset >= below", "False"),
        Break("zeros of a lost page are entries", "TransactionIndex.load", "entry.first_offset >= entry.last_offset", "False"),
        Break("the search ends too early", "TransactionIndex.collect", "entry.last_stable_offset >= upper", "True"),
    ),
    *mutants_of(
        (f"{HERE}test_log_reserve.py",),
        Break("a full disk stays full", "Reserve._release", "self.size <= keep", "True"),
        Break("who has borrowed keeps it", "Reserve.lend", "self.fill()", "pass"),
        Break("a start has what others left", "Reserve.open_for_start", "free < READY_BYTES and (size := self.size) and self._release()", "False"),
        Break("ends of transactions take all", "Log.urgently", "reserve.lend(action, FOR_ENDS)", "reserve.lend(action)"),
        Break("each partition takes the reserve", "Upkeep.retain", "self._remove_of(partition, at_once=True)", "pass"),
        Break("a segment that cannot be renamed stays", "Trimming._discard", "self._log.fs.remove(path)", "pass"),
        Break("a refused change is said to be possible", "KnownTopics._take_back", "not self._fs.exists(self._path) or files.read_whole(self._fs, self._path) != self._content()", "True"),
    ),
    *mutants_of(
        BACKUP,
        Break("what has changed since is not in it", "Backups._sizes", "linked.get(partition) != now", "partition not in linked"),
        Break("a log that cannot be read is in it", "Backups._link", "partition.offline is not None", "False"),
        Break("who is gone has the place for ever", "Backups._is_wanted", "False", "True"),
        Break("small files are not in it", "Backups._note", "self._link_into(self._place, self._root, name)", "pass"),
        Break("producers are not in it", "Backups._link", "suffix == files.SNAPSHOT", "False"),
        Break("half-made files are in it", "Backups._link", "stem in bases and suffix in files.OF_SEGMENT", "True"),
        Break("a copy of many instants", "_files", "known.get(each, os.path.getsize(file))", "os.path.getsize(file)"),
        Break("what is missing is not missed", "_asked", "log.endswith(files.LOG) and log not in names", "False"),
        Break("a copy within the data", "_check", "os.path.commonpath([inside, os.path.realpath(to)]) == inside", "False"),
        Break("a disk without room is tried", "_check_room", "free < source.size", "False"),
    ),
]
