"""`eoslog rehearse`: runs the commit protocol against a cluster that is to be trusted, without Spark.

Everything happens under scratch names of its own (ScratchNames), which are removed at the end
(run.py). The rules are those of connector/commit, the requests those of client.
"""
