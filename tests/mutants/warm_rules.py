"""Rules of the warm process, each broken."""

from tests.mutants.mutant import Break, Mutant, mutants_of

WARM = ("tests/warm/test_warm.py",)

MUTANTS: list[Mutant] = [
    *mutants_of(
        WARM,
        Break("archives are looked into again", "prefer_installed", "one in gone or one.startswith(within)", "False", ("tests/connector/spark/test_spark_python.py",)),
        Break("threads are lost", "differences", "has_threads(wanted.environment)", "False"),
        Break("any folder will do", "differences", "wanted.folder != warm.folder", "False"),
        Break("any module is run", "differences", "wanted.module not in RUNS", "False"),
        Break("what libraries have read does not count", "differences", "ours.get(name) != theirs.get(name)", "False"),
        Break("Spark's own variables count", "_inherited", "name not in _ITS_OWN and name != _THREADS", "name != _THREADS"),
        Break("a daemon's worker is not looked at", "Request.worker", "self.module != DAEMON", "True"),
        Break("fields of any kind", "decode", "not all((isinstance(value, kind) for value, kind in zip(found, kinds, strict=True)))", "False"),
        Break("any process has a warm one", "address", "not command.endswith('(java')", "False"),
        Break("all Pythons share one", "address", "(sys.executable, sys.version, __version__)", "(sys.version, __version__)"),
        Break("a stranger is trusted", "_connect", "peer(connection)[1] == os.geteuid()", "True"),
        Break("a stuck one is left", "_end_the_stuck", "os.kill(process, signal.SIGKILL)", "pass", hangs=True),
        Break(
            "a program of the user's is a fork", "hand_over", "arguments[:1] != ['-m'] or len(arguments) < 2 or arguments[1] not in RUNS or has_threads(os.environ)", "arguments[:1] != ['-m'] or len(arguments) < 2 or has_threads(os.environ)"
        ),
        Break("how the fork ended is not told", "_live_as_long", "os._exit(status)", "os._exit(0)"),
        Break("by which signal is not told", "_live_as_long", "os.kill(os.getpid(), -status)", "pass"),
        Break("anybody is answered", "WarmServer._welcome", "peer(connection)[1] != os.geteuid()", "False"),
        Break("a fork outlives who stood for it", "WarmServer._hear", "os.kill(guest.fork, signal.SIGTERM)", "pass"),
        Break("streams may be missing", "WarmServer._consider", "len(guest.streams) != _STREAMS", "False"),
        Break("a refusal is not said", "WarmServer._refuse", "guest.connection.send", "str"),
        Break("forks come before their imports", "WarmServer._answer_waiting", "self._is_ready", "True"),
        Break("a fork keeps the others' connections", "WarmServer._forget_all_but", "other is not guest", "False"),
        Break("streams are kept open", "WarmServer._fork", "guest.close_streams()", "pass"),
        Break("ends are kept open", "WarmServer._report_end", "os.close(descriptor)", "pass"),
        Break("the end is not told", "WarmServer._report_end", "guest.connection.send", "str"),
        Break("it outlives the JVM", "WarmServer.serve", "descriptor == self._jvm", "False", hangs=True),
        Break("all draw the same", "reseed_numpy", "numbers.seed()", "pass"),
        Break("the environment of another", "become", "os.environ.clear()\nos.environ.update(request.environment)", "pass"),
        Break("the streams of another", "become", "os.dup2(stream, standard)", "pass"),
        Break("its workers stand for it as well", "become", "os.register_at_fork(after_in_child=guest.connection.close)", "pass"),
        Break("whose it is", "become", "processes.driver_is(jvm)", "pass"),
        Break("its arguments", "become", "[request.module, *request.arguments]", "[request.module]"),
        Break("interrupts", "become", "request.ignores_interrupts", "True"),
        Break("the mask of another", "become", "request.umask", "0"),
    ),
]
