"""One warm Python process for each of Spark's JVMs; the JVM's other Python processes are forked from it.

Spark starts Python six times and more for a query, and each imports PySpark, NumPy, PyArrow and eoslog. Where
a user has asked for it (docs/starts.md), the first of them begins a warm process that imports them once; what
Spark starts then only asks it (`ask.py`) for a fork of itself (`serve.py`) that is like the process Spark
wanted (`request.py`): its arguments, environment, standard streams and signals.

Whatever cannot be forked runs as it would without eoslog.warm.
"""
