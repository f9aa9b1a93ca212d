"""The commit protocol's rules, pure: no sockets, no files, no clocks, no Spark.

names: the transactional ids. decision: what the group's offsets say about the last decided batch.
messages: what travels between driver and tasks. commands: what the rules ask of the cluster.
begin, prepare, seal, decide, finish, prove, replay: the rules, as generators that yield commands and receive
answers. faults: the errors that stop a batch. docs/exactly-once.md explains it all.
"""
