"""One warm Python process for each of Spark's JVMs; the JVM's other Python processes are forked from it.

Spark starts Python six times and more for a query, and each process imports PySpark, NumPy, PyArrow and
eoslog. If the user has asked for it (docs/starts.md), the first one starts a warm process, which imports them
once. What Spark starts then only asks it (`ask.py`) for a fork of itself (`serve.py`) that is like the
process Spark wanted (`request.py`): its arguments, environment, standard streams and signals.

What cannot be forked runs as it would without eoslog.warm.
"""
