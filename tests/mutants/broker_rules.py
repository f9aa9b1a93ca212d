"""Rules of the bundled broker beside its log, broken: who may do what, who is who, what is durable before it
counts, what comes back after a failed disk, who waits for whom."""

from tests.mutants.mutant import Break, Mutant, mutants_of

B = "tests/broker/"
LOG = f"{B}log/"
SECURITY = f"{B}security/"
RIGHTS = (
    f"{SECURITY}test_hidden.py",
    f"{SECURITY}test_authorize.py",
    f"{SECURITY}test_acl_rules.py",
    f"{SECURITY}test_regex_rights.py",
)
LOGINS = (
    f"{SECURITY}test_exchanges.py", f"{SECURITY}test_sasl_clients.py", f"{SECURITY}test_scram_users.py", f"{SECURITY}test_listeners.py",
)  # fmt: skip
CHANGES = (f"{SECURITY}test_listener_changes.py", f"{B}admin/test_admin_configs.py")
COORDINATOR = (
    f"{B}coordinator/transactions/test_transaction_coordinator.py",
    f"{B}coordinator/transactions/test_strangers_epoch_wire.py",
    f"{B}coordinator/transactions/test_transaction_shell_model.py",
)
MACHINE = tuple(f"{B}network/test_wire_machine{part}.py" for part in ("", "_life", "_model"))
RETURN = (f"{LOG}test_log_return.py",)
GROUPS_RETURN = (f"{B}coordinator/groups/test_groups_return.py",)

MUTANTS: list[Mutant] = [
    # A partition that comes back
    *mutants_of(
        "broker/log/recovery/partition_reopening.py",
        RETURN,
        Break(
            "what no sync made safe is read back",
            "            file.truncate(size)\n            file.sync()\n",
            "            pass\n",
        ),
        Break(
            "nobody asks whether the disk takes more",
            "    if file.write([bytes(PROBE_BYTES)], 0) < PROBE_BYTES:",
            "    if False:",
        ),
    ),
    *mutants_of(
        "broker/log/partition/partition.py",
        RETURN,
        Break(
            "a job of before writes on",
            "        if self.progress.is_running or self.durability.is_busy:",
            "        if self.durability.is_busy:",
        ),
        Break(
            "with page cache durability the end is cut, too",
            "        if not self.durability.lazy and len(log.segments):",
            "        if len(log.segments):",
        ),
        Break(
            "a partition that was closed meanwhile is open again",
            "        if self._log.closed:\n            Segments(",
            "        if False:\n            Segments(",
        ),
        Break("who reads is not told", "        self._watch.stir()\n", ""),
    ),
    *mutants_of(
        "broker/log/upkeep/upkeep.py",
        RETURN,
        Break(
            "a damaged log is tried again and again",
            "                partition.stay_offline(str(error))\n",
            "                pass\n",
        ),
        Break(
            "why it stays offline is said each time",
            "        if self._refusals.get(partition) != str(error):",
            "        if True:",
        ),
    ),
    *mutants_of(
        "broker/log/opening/opening.py",
        (*RETURN, f"{LOG}test_log_damage_wire.py"),
        Break(
            "who could not be opened stays offline for ever", "str(error), may_return=True)", "str(error))"
        ),
        Break(
            "the recovery point of who could not be opened is forgotten",
            "recovery_point = known.recovery_point\n",
            "recovery_point = 0\n",
        ),
        Break(
            "what was compacted is damage when nobody knows",
            "        if checkpoints.cleaned_forgotten and",
            "        if False and",
        ),
    ),
    *mutants_of(
        "broker/coordinator/groups/group_coordinator.py",
        GROUPS_RETURN,
        Break("offsets that were refused are told", "        self._offsets.unload(partition)\n", ""),
        Break("who waits in a group waits on", "        self._members.unload(partition)\n", ""),
        Break("members that were refused stay", "        self.consumers.unload(partition)\n", ""),
        Break(
            "what the log says is not read",
            "        self._journal.replay(partition, self._read)\n        self._members.start(partition)",
            "        self._members.start(partition)",
        ),
        Break("sessions do not begin again", "        self.consumers.start(partition)\n", ""),
    ),
    *mutants_of(
        "broker/coordinator/transactions/transaction_start.py",
        COORDINATOR,
        Break(
            "ids that were never recorded stay",
            "        if not entry.busy and said.get(entry.id) is None:",
            "        if False:",
        ),
        Break(
            "ids stay uncertain",
            "        if metadata is not None and not entry.busy:",
            "        if False:",
        ),
    ),
    *mutants_of(
        "broker/coordinator/transactions/transaction_coordinator.py",
        COORDINATOR,
        Break(
            "a stranger's epoch is taken",
            "        if newest is not None and epoch > newest:",
            "        if False:",
        ),
    ),
    *mutants_of(
        "broker/coordinator/transactions/transaction_entry.py",
        COORDINATOR,
        Break(
            "what is known again stays lost",
            "        self.metadata, self._lost = metadata, None\n",
            "        self.metadata = metadata\n",
        ),
    ),
    *mutants_of(
        "broker/coordinator/transactions/transaction_markers.py",
        COORDINATOR,
        Break(
            "a partition under a later epoch holds the id",
            "            if _is_superseded(partition, metadata.producer_id, error):",
            "            if False:",
        ),
        Break(
            "a marker is left out where a transaction is open",
            " and partition.ongoing(producer_id) is None",
            "",
        ),
    ),
    # What is durable before it counts
    *mutants_of(
        "broker/coordinator/transactions/producer_ids.py",
        COORDINATOR,
        Break(
            "producer ids are used before their block is on the disk",
            '            write_whole(self._fs, self._path, f"{_HEAD}{end}\\n".encode())\n',
            "            pass\n",
        ),
        Break(
            "an id that a log knows is given out again",
            "        self._next = self._end = used + 1",
            "        self._end = used + 1",
        ),
    ),
    *mutants_of(
        "broker/stored/authorizer.py",
        (*RIGHTS, f"{SECURITY}test_stored_first.py"),
        Break(
            "access rules count before they are on the disk",
            "            files.write_whole(self._fs, self._path, encode(acls))\n",
            "            self.acls = acls\n            files.write_whole(self._fs, self._path, encode(acls))\n",
        ),
        Break(
            "what was decided before a change holds on", "        self._decided.clear()\n\n\ndef", "\n\ndef"
        ),
        Break(
            "who names itself like a super user is one",
            "if client.principal in self._super_users:",
            "if client.principal.lower() in self._super_users:",
        ),
    ),
    *mutants_of(
        "broker/security/credentials.py",
        (*LOGINS, f"{SECURITY}test_stored_first.py"),
        Break(
            "credentials count before they are on the disk",
            "            files.write_whole(self._fs, self._path, encode(changed))\n",
            "            self._known = changed\n            files.write_whole(self._fs, self._path, encode(changed))\n",
        ),
    ),
    *mutants_of(
        "broker/stored/config_store.py",
        (f"{SECURITY}test_stored_first.py",),
        Break(
            "configs count before they are on the disk",
            "        try:\n            files.write_whole(",
            "        self._kinds[kind] = changed\n        try:\n            files.write_whole(",
        ),
        Break("everybody may read passwords of key stores", "encode(), private=True)", "encode())", CHANGES),
    ),
    *mutants_of(
        "broker/security/tls.py",
        CHANGES,
        Break(
            "an authority that was removed stays trusted",
            "            self.context = ListenerTls(self._listener, self._config).context",
            '            self._load_key(self._store("ssl.keystore"))\n'
            '            self._load_trusted(self._store("ssl.truststore"))',
        ),
        Break(
            "a store that cannot be read is taken",
            "            ListenerTls(self._listener, wanted)",
            "            pass",
        ),
        Break(
            "the stores are those of the start",
            "own_options(config, listener.name).get(name, config",
            "listener.own.get(name, config",
        ),
    ),
    *mutants_of(
        "broker/network/connection_counts.py",
        ("tests/broker/fairness/test_server_limits.py",),
        Break(
            "an unknown machine ends the broker",
            "    except OSError as error:\n        log",
            "    except KeyError as error:\n        log",
        ),
    ),
    *mutants_of(
        "broker/network/connection_counts.py",
        CHANGES,
        Break(
            "a listener has no limit before a handshake",
            "if place.count >= place.most else None",
            "if False else None",
        ),
        Break("a listener has no limit", "        if place.open > place.most:", "        if False:"),
        Break("a listener has no pace", "place.pace.wait(now, place.rate)", "0.0"),
    ),
    *mutants_of(
        "broker/config/security.py",
        CHANGES,
        Break(
            "trusted certificates are told",
            '"those certificates themselves, in place of a file", secret=True',
            '"those certificates themselves, in place of a file"',
        ),
    ),
    *mutants_of(
        "broker/core/dynamic_options.py",
        CHANGES,
        Break(
            "what a listener needs a restart for is taken",
            "        if not found.dynamic:",
            "        if False:",
        ),
        Break(
            "one broker's key store is every broker's",
            "        if name == EVERY_BROKER and not found.limit:",
            "        if False:",
        ),
        Break(
            "options of a listener that is gone forbid all others",
            "                if not self._is_left(name, option):",
            "                if True:",
        ),
    ),
    *mutants_of(
        "broker/core/dynamic_options.py",
        (f"{B}admin/test_admin_configs.py",),
        Break("what only a restart changes is taken and ignored", "    if read_only(option) or", "    if"),
        Break("no value of an option without effect is checked", "        rule.parse(value)", "        pass"),
    ),
    *mutants_of(
        "broker/resources/brokers.py",
        (f"{B}admin/test_admin_configs.py",),
        Break("what the start gave is a default", "if option in given else None", "if False else None"),
    ),
    # Who is who
    *mutants_of(
        "broker/security/kerberos_names.py",
        (f"{SECURITY}test_kerberos_names.py",),
        Break("every realm is the own one", "first if where == realm else None", "first"),
        Break(
            "a name may look like another realm's principal",
            'if re.search("[/@]", name) or not name',
            "if not name",
        ),
        Break(
            "a rule is for principals of any length", "    if len(values) - 1 != rule.parts:", "    if False:"
        ),
    ),
    *mutants_of(
        "broker/security/scram.py",
        LOGINS,
        Break("the nonce is not compared", "or not hmac.compare_digest(found[2], self._nonce)", "or False"),
        Break(
            "the channel binding is not compared",
            "        if bound != self._gs2.encode() or",
            "        if False or",
        ),
        Break(
            "a salt that changes tells who is unknown",
            'return hmac.digest(_DECOY, user.encode(), "sha256")[:16]',
            "return secrets.token_bytes(16)",
        ),
        Break(
            "acting for another is possible",
            "        if head[3] and _name(head[3]) != self._user:",
            "        if False:",
        ),
        Break("any proof holds", "not proof_holds(self._mechanism, known, signed, proof)", "not proof"),
    ),
    *mutants_of(
        "broker/security/plain.py",
        LOGINS,
        Break("an empty password is one", "        if not user or not password:", "        if not user:"),
        Break(
            "any password fits", "        if not self._passwords.fits(user, password):", "        if False:"
        ),
        Break(
            "acting for another is possible",
            '        if authorization_id not in ("", user):',
            "        if False:",
        ),
    ),
    *mutants_of(
        "broker/security/oauth.py",
        LOGINS,
        Break(
            "the issuer is not looked at",
            "                issuer=config.security.oauth_issuer or None,",
            "                issuer=None,",
        ),
        Break("the audience is not looked at", '"verify_aud": bool(self._audience)', '"verify_aud": False'),
        Break(
            "a token never expires",
            '"require": ["exp", config.security.oauth_subject_claim],',
            '"verify_exp": False,\n                    "require": ["exp", config.security.oauth_subject_claim],',
        ),
        Break(
            "a session outlives its token",
            '        return user, max(1, int((claims["exp"] - time.time()) * 1000))',
            "        return user, 0",
        ),
        Break(
            "acting for another is possible",
            '        if found[1] and found[1].decode("utf-8", "replace") != user:',
            "        if False:",
        ),
    ),
    *mutants_of(
        "broker/security/sasl.py",
        LOGINS,
        Break(
            "a session is renewed by another", ' and session.principal != f"User:{step.user}":', " and False:"
        ),
        Break(
            "who failed may go on",
            "            session.state, session.exchange = AuthenticationState.FAILED, None\n",
            "            session.exchange = None\n",
        ),
        Break(
            "a failure is told at once",
            "            await asyncio.sleep(self._config.security.failed_authentication_delay_ms / 1000)\n",
            "",
        ),
    ),
    *mutants_of(
        "broker/security/tls.py",
        (*LOGINS, f"{SECURITY}test_tls_limits.py"),
        Break(
            "old versions of TLS are spoken",
            "        self.context.minimum_version, self.context.maximum_version = self._versions()\n",
            "        self._versions()\n",
        ),
        Break("nobody needs a certificate", "        self.context.verify_mode = _AUTH[auth]\n", ""),
    ),
    *mutants_of(
        "broker/security/tls.py",
        ("tests/broker/security/test_java_stores.py",),
        Break("the default type is what it says", "base == option_table()[name].default", "False"),
        Break(
            "the type is what the file is", "return given.strip().upper() if given else None", "return None"
        ),
        Break("the store's password is not that of the PEM", 'pem, store.password or ""', 'pem, ""'),
    ),
    # What a fault is answered
    *mutants_of(
        "protocol/error_places.py",
        (f"{B}network/test_server_connection.py", "tests/protocol/test_error_places.py"),
        Break(
            "a code that would be misread is told",
            "return None if key in MISREAD else _of_all(",
            "return _of_all(",
        ),
        Break(
            "what is asked for gets no error",
            "    return named | (own or _parts(",
            "    return named | (_parts(",
        ),
        Break(
            "an offset stands beside an error", "        elif field.name in _NOTHING:", "        elif False:"
        ),
    ),
    *mutants_of(
        "broker/network/connection.py",
        (f"{B}network/test_server_connection.py",),
        Break(
            "a fault that cannot be told leaves the client waiting",
            "        if error_answer is None:\n",
            "        if False:\n",
        ),
        Break(
            "an answer that does not fit leaves the client waiting",
            "        if parts is None:\n",
            "        if False:\n",
        ),
        Break(
            "it is read on whatever is held",
            "        reads = machine.has_room and memory",
            "        reads = memory",
            hangs=True,
        ),
        Break(
            "a request with effects to come holds up nobody",
            "        if not isinstance(answer, Settled):\n",
            "        if False:\n",
            hangs=True,
        ),
        Break(
            "who has gone holds what it sent",
            "        self._writable.set()\n        self._account()\n",
            "        self._writable.set()\n",
            hangs=True,
        ),
        Break(
            "requests begin while the broker stops",
            "        self.machine.drain()\n",
            "",
            hangs=True,
        ),
        Break(
            "nobody notices that a client does not read",
            "        self.machine.writable = False\n        self._writable.clear()\n",
            "",
            hangs=True,
        ),
    ),
    # The order, the bounds and the life of a connection
    *mutants_of(
        "broker/network/wire_machine.py",
        MACHINE,
        Break(
            "a request with effects to come holds up nobody",
            "            self._blocker is None\n",
            "            True\n",
        ),
        Break(
            "whatever ends lets the next begin", "        if slot is self._blocker:\n", "        if True:\n"
        ),
        Break(
            "any number is in flight", "            len(self._line) < MAX_IN_FLIGHT\n", "            True\n"
        ),
        Break(
            "requests in flight are not counted",
            "self._line_requests + self._line_answers < MAX",
            "self._line_answers < MAX",
        ),
        Break(
            "answers in flight are not counted",
            "self._line_requests + self._line_answers < MAX",
            "self._line_requests < MAX",
        ),
        Break("who is mute begins", "            and not self.muted\n", ""),
        Break("who does not read gets more", "            and self.writable\n", ""),
        Break(
            "who holds answers gets more while they are short",
            "            and not (answers_short and self.held_answers)\n",
            "",
        ),
        Break(
            "who holds none gets none while answers are short",
            "(answers_short and self.held_answers)",
            "answers_short",
        ),
        Break("requests begin in the reverse order", "self._backlog.popleft()", "self._backlog.pop()"),
        Break(
            "it is read on while a request waits",
            "        return not self._backlog and self._may_hold()\n",
            "        return self._may_hold()\n",
        ),
        Break("bytes come after the end", "        if self.phase is not OPEN:\n            return\n", ""),
        Break("half a frame outlives its connection", "        self._reader = FrameReader(0)\n", ""),
        Break("what has not begun outlives its connection", "        self._backlog.clear()\n", ""),
        Break("answers leave after the end", "            self.sends = False\n", ""),
        Break(
            "no answer leaves while it drains", "        if phase is not DRAINING:\n", "        if True:\n"
        ),
        Break(
            "a closed connection drains",
            "        if self.phase is OPEN:\n            self._forget(DRAINING)",
            "        if True:\n            self._forget(DRAINING)",
        ),
        Break(
            "who has gone comes back",
            "        if self.phase is not LOST:\n            self._forget(CLOSED)",
            "        if True:\n            self._forget(CLOSED)",
        ),
        Break(
            "we wait for who has gone", "        self.writable = True  # nothing", "        pass  # nothing"
        ),
        Break(
            "small answers overtake large ones",
            "            return chain((self.flush(),) if self._small else (), joined(slot.parts))\n",
            "            return joined(slot.parts)\n",
        ),
        Break(
            "small answers pile up",
            "        return (self.flush(),) if self._small_bytes > JOIN_BELOW else ()\n",
            "        return ()\n",
        ),
        Break(
            "who waits for an answer is idle",
            "        waits_for_us = self._line and self.writable\n",
            "        waits_for_us = False\n",
        ),
        Break("who does not read its answers waits for us", "self._line and self.writable", "self._line"),
        Break(
            "who does not read is cut at any time",
            "        if deaf and shortage.answers_short:\n",
            "        if deaf:\n",
        ),
        Break(
            "who does not read is never cut",
            "        if deaf and shortage.answers_short:\n",
            "        if False:\n",
        ),
        Break(
            "who sends slowly is cut at any time",
            "        if shortage.requests_short and self",
            "        if self",
        ),
        Break(
            "who waits for others is cut",
            "self.unbegun > SMALL and (self.reading or bool(self._backlog))",
            "self.unbegun > SMALL",
        ),
        Break("who holds little is cut", "self.unbegun > SMALL and (", "("),
        Break(
            "the rest after the end waits for ever",
            "            return Absence.DEAF_TO_THE_REST if deaf else None\n",
            "            return None\n",
        ),
        Break("any request waits for data", "first.header.api_key == ApiKey.FETCH and first", "first"),
        Break(
            "frames of a stranger may be large for ever",
            "        self._reader.max_size = max_size\n",
            "        pass\n",
        ),
    ),
    # Who may do what
    *mutants_of(
        "broker/authorize/record_access.py",
        RIGHTS,
        Break(
            "transactional batches need no right to their id",
            "    if not _has_transactional(asked.request) or (",
            "    if True or (",
        ),
        Break(
            "a transactional batch needs no id",
            "        transactional_id is not None\n        and asked",
            "        transactional_id is None or asked",
        ),
        Break(
            "followers need no right",
            "    if asked.may_cluster(AclOperation.CLUSTER_ACTION):\n        return None\n    return refusal",
            "    return None\n    return refusal",
        ),
        Break(
            "who reads may write",
            "    topics(AclOperation.WRITE,",
            "    topics(AclOperation.READ,",
        ),
    ),
    *mutants_of(
        "broker/authorize/groups.py",
        RIGHTS,
        Break(
            "groups are listed to everybody",
            '        groups = [\n            group\n            for group in answer["groups"]\n            if asked.may(AclOperation.DESCRIBE, _GROUP, group["group_id"], log=False)',
            '        groups = [\n            group\n            for group in answer["groups"]\n            if True',
        ),
        Break(
            "a group tells topics that may not be seen",
            "    if all(asked.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name, log=False) for name in names):",
            "    if True:",
        ),
        Break(
            "all offsets are told",
            '        if asked.may(AclOperation.DESCRIBE, ResourceType.TOPIC, asked.topic_name(topic) or "", log=False)',
            "        if True",
        ),
    ),
    *mutants_of(
        "broker/authorize/transactions.py",
        RIGHTS,
        Break("two-phase commit needs no right", 'not asked.request["enable2_pc"] or asked', "True or asked"),
        Break(
            "a transaction tells topics that may not be seen",
            'if asked.may(AclOperation.DESCRIBE, ResourceType.TOPIC, topic["topic"], log=False)',
            "if True",
        ),
        Break(
            "ids are listed to everybody",
            'if asked.may(AclOperation.DESCRIBE, _ID, state["transactional_id"], log=False)',
            "if True",
        ),
        Break(
            "markers need no right",
            "    if asked.may_cluster(AclOperation.ALTER, log=False) or asked.may_cluster(AclOperation.CLUSTER_ACTION):",
            "    if True:",
        ),
        Break(
            "partitions need no right to their topic",
            '    denied = {t["name"] for t in topics if not asked.may_topic(AclOperation.WRITE, t["name"])}',
            "    denied: set[str] = set()",
        ),
    ),
    # Who waits for whom
    *mutants_of(
        "broker/fairness/memory.py",
        (f"{B}fairness/test_server_limits.py",),
        Break(
            "nothing is kept for those who hold nothing",
            "return self.answers >= self._answer_limit + self._answer_reserve",
            "return self.answers >= self._answer_limit",
        ),
    ),
    *mutants_of(
        "broker/network/large_requests.py",
        (f"{B}network/test_server_steps.py", f"{B}network/test_server_connection.py"),
        Break(
            "many things are served at once",
            "    start, size = 0, _FIRST\n",
            "    start, size = 0, len(everything)\n",
        ),
        Break("one thing is told a thousand times", "    if parts.same is not None:", "    if False:"),
        Break(
            "large requests are read while others wait",
            "    return size > LARGE and key != ApiKey.PRODUCE",
            "    return False",
        ),
    ),
    *mutants_of(
        "broker/handlers/fetch.py",
        (f"{B}network/test_server_steps.py",),
        Break(
            "all that is asked for is read in one round",
            "fetch.is_long or context.broker.turns.has_read_enough:",
            "fetch.is_long:",
        ),
    ),
    *mutants_of(
        "broker/rules/fetch_session.py",
        (f"{B}rules/test_fetch_session.py",),
        Break(
            "a new session follows any number",
            "        session.take(request)\n        if self._follow_too_many():",
            "        session.take(request)\n        if False:",
        ),
        Break(
            "a session grows to any number",
            'if request["topics"] and self._follow_too_many():',
            "if False:",
        ),
    ),
    *mutants_of(
        "broker/network/tls_door.py",
        (f"{SECURITY}test_tls_limits.py",),
        Break("handshakes begin all at once", "            await asyncio.sleep(0)  # a", "            # a"),
        Break("buffers are Python's", "            sslproto.SSLProtocol.max_size = BUFFER\n", ""),
    ),
    *mutants_of(
        "broker/fairness/garbage.py",
        (f"{B}fairness/test_garbage.py",),
        Break("in the midst of large requests", "        if busy and now", "        if False and now"),
        Break("Python looks as well", "gc.set_threshold(youngest, middle, _NEVER)", "pass"),
    ),
    *mutants_of(
        "broker/console/server.py",
        ("tests/console/test_console_http.py",),
        Break("what is no request fills the log", "            logger=_requests,\n", ""),
    ),
    *mutants_of(
        "broker/console/start.py",
        ("tests/console/test_console_security.py",),
        Break("a console that lets nobody in", ' - {""} == {"GSSAPI"}:', ' == {"none"}:'),
        Break("a mechanism with a comma behind it is another", ' - {""} == {"GSSAPI"}', ' == {"GSSAPI"}'),
    ),
]
