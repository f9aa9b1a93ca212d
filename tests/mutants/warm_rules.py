"""Rules of the warm process, each broken."""

from tests.mutants.mutant import Break, Mutant, mutants_of

WARM = ("tests/warm/test_request.py", "tests/warm/test_warm.py")

MUTANTS: list[Mutant] = [
    *mutants_of(
        "eoslog/warm/request.py",
        WARM,
        Break("threads are lost", "    if has_threads(wanted.environment):\n", "    if False:\n"),
        Break("any folder will do", "if wanted.folder != warm.folder:", "if False:"),
        Break("any module is run", "if wanted.module not in RUNS:", "if False:"),
        Break(
            "what libraries have read does not count",
            "if ours.get(name) != theirs.get(name))",
            "if False)",
        ),
        Break("Spark's own variables count", "if name not in _ITS_OWN and name", "if name"),
        Break("a daemon's worker is not looked at", "if self.module != DAEMON:", "if True:"),
        Break(
            "fields of any kind",
            "    if not all(isinstance(value, kind)",
            "    if False and not all(isinstance(value, kind)",
        ),
    ),
    *mutants_of(
        "eoslog/warm/ask.py",
        WARM,
        Break("any process has a warm one", 'if not command.endswith("(java"):', "if False:"),
        Break(
            "all Pythons share one",
            "(sys.executable, sys.version, __version__)",
            "(sys.version, __version__)",
        ),
        Break("a stranger is trusted", "if peer(connection)[1] == os.geteuid():", "if True:"),
        Break("a stuck one is left", "os.kill(process, signal.SIGKILL)", "pass", hangs=True),
        Break("a program of the user's is a fork", "or arguments[1] not in RUNS or", "or"),
        Break("how the fork ended is not told", "    os._exit(status)\n", "    os._exit(0)\n"),
        Break("by which signal is not told", "        os.kill(os.getpid(), -status)\n", "        pass\n"),
    ),
    *mutants_of(
        "eoslog/warm/serve.py",
        WARM,
        Break("anybody is answered", "if peer(connection)[1] != os.geteuid():", "if False:"),
        Break("a fork outlives who stood for it", "os.kill(guest.fork, signal.SIGTERM)", "pass"),
        Break("streams may be missing", "elif len(guest.streams) != _STREAMS:", "elif False:"),
        Break("a refusal is not said", "guest.connection.send(why.encode(", "str(why.encode("),
        Break("forks come before their imports", "has_all = self._is_ready or", "has_all = True or"),
        Break(
            "a fork keeps the others' connections",
            "            if other is not guest:\n",
            "            if False:\n",
        ),
        Break(
            "streams are kept open", "        guest.close_streams()\n        descriptor", "        descriptor"
        ),
        Break("ends are kept open", "        os.close(descriptor)\n        _, status", "        _, status"),
        Break("the end is not told", "guest.connection.send(str(os.waitstatus", "str(str(os.waitstatus"),
        Break("it outlives the JVM", "if descriptor == self._jvm:", "if False:", hangs=True),
        Break("all draw the same", "        numbers.seed()\n", "        pass\n"),
    ),
    *mutants_of(
        "eoslog/warm/fork.py",
        WARM,
        Break(
            "the environment of another",
            "    os.environ.clear()\n    os.environ.update(request.environment)\n",
            "",
        ),
        Break("the streams of another", "        os.dup2(stream, standard)\n", ""),
        Break(
            "its workers stand for it as well",
            "    os.register_at_fork(after_in_child=guest.connection.close)",
            "    ",
        ),
        Break("whose it is", "    processes.driver_is(jvm)\n", ""),
        Break("its arguments", "[request.module, *request.arguments]", "[request.module]"),
        Break("interrupts", "if request.ignores_interrupts else", "if True else"),
        Break("the mask of another", "    os.umask(request.umask)\n", "    os.umask(0)\n"),
    ),
]
