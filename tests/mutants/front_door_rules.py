"""Rules of the front door, each broken: which Python Spark starts, and who is told."""

from tests.mutants.mutant import Break, Mutant, mutants_of

OTHER_PYTHON = ("tests/packages/test_other_python.py",)
BROUGHT = ("tests/connector/spark/test_brought.py",)

MUTANTS: list[Mutant] = [
    *mutants_of(
        "eoslog/other_python.py",
        OTHER_PYTHON,
        Break(
            "any Python will do",
            "    if found is None or Path(found).parent",
            "    return True\n    if Path(found).parent",
        ),
        Break(
            "a start waits for another Python",
            'threading.Thread(target=_warn, args=asked, name="eoslog-python", daemon=True).start()',
            "_warn(*asked)",
        ),
        Break("one that lacks eoslog is fine", "if done.returncode == 0:", "if True:"),
        Break("one that has eoslog is not", "if done.returncode == 0:", "if False:"),
    ),
    *mutants_of(
        "eoslog/registration.py",
        OTHER_PYTHON,
        Break(
            "any session is registered",
            "    elif wrong := _what_sparks_python_lacks():",
            "    elif wrong := '':",
        ),
        Break("Spark's own processes are looked at", "or ours or connects", "or connects"),
        Break("clients of Spark Connect are looked at", "or ours or connects", "or ours"),
        Break("commands are looked at", 'if "pyspark" not in sys.modules or', "if"),
    ),
    *mutants_of(
        "connector/spark/brought.py",
        BROUGHT,
        Break(
            "eoslog before its jar", "(_Jar(jar), _Blank(type(value)))", "(_Blank(type(value)), _Jar(jar))"
        ),
        Break("an eoslog of a folder is a jar", "    if jar is None:", "    if False:"),
        Break("executors look where the driver does", ", *__import__('glob').glob({sent!r})]]", "]]"),
    ),
    *mutants_of(
        "connector/spark/processes.py",
        OTHER_PYTHON,
        Break(
            "sources run the Python of tasks",
            'environment.get("PYSPARK_DRIVER_PYTHON", environment',
            '("" or environment',
        ),
    ),
]
