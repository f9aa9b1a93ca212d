"""Rules of the front door, each broken: which Python Spark starts, and who is told."""

from tests.mutants.mutant import Break, Mutant, mutants_of

OTHER_PYTHON = ("tests/packages/test_other_python.py",)
BROUGHT = ("tests/connector/spark/test_spark_processes.py",)

MUTANTS: list[Mutant] = [
    *mutants_of(
        OTHER_PYTHON,
        Break("any Python will do", "_is_this", "if found is None or Path(found).parent != here.parent:\n    return False", "return True\nif Path(found).parent != here.parent:\n    return False"),
        Break("a start waits for another Python", "warn_if_other", "threading.Thread(target=_warn, args=asked, name='eoslog-python', daemon=True).start()", "_warn(*asked)"),
        Break("one that lacks eoslog is fine", "what_it_lacks", "done.returncode == 0", "True"),
        Break("one that has eoslog is not", "what_it_lacks", "done.returncode == 0", "False"),
        Break("any session is registered", "register", "_what_sparks_python_lacks()", "''"),
        Break("Spark's own processes are looked at", "watch_pythons", "'pyspark' not in sys.modules or ours or connects or (home_archive() is not None)", "'pyspark' not in sys.modules or connects or home_archive() is not None"),
        Break("clients of Spark Connect are looked at", "watch_pythons", "'pyspark' not in sys.modules or ours or connects or (home_archive() is not None)", "'pyspark' not in sys.modules or ours or home_archive() is not None"),
        Break("commands are looked at", "watch_pythons", "'pyspark' not in sys.modules or ours or connects or (home_archive() is not None)", "ours or connects or home_archive() is not None"),
    ),
    *mutants_of(
        BROUGHT,
        Break("eoslog before its jar", "reduce_with_jar", "(_Jar(jar), _Blank(type(value)))", "(_Blank(type(value)), _Jar(jar))"),
        Break("an eoslog of a folder is a jar", "reduce_with_jar", "jar is None", "False"),
        Break(
            "executors look where the driver does",
            "_ON_PATH",
            "\"[__import__('pyspark.worker_util', fromlist=['add_path']).add_path(__import__('os').path.abspath(jar)) for jar in [{path!r}, *__import__('glob').glob({sent!r})]]\"",
            "\"[__import__('pyspark.worker_util', fromlist=['add_path']).add_path(__import__('os').path.abspath(jar)) for jar in [{path!r}]]\"",
        ),
    ),
    *mutants_of(OTHER_PYTHON, Break("sources run the Python of tasks", "python_of_sources", "environment.get('PYSPARK_DRIVER_PYTHON', environment.get('PYSPARK_PYTHON', 'python3'))", "'' or environment.get('PYSPARK_PYTHON', 'python3')")),
]
