"""The commit protocol's rules, pure: no sockets, no files, no clocks, no Spark.

names: transactions by name. decision: what the group's offsets say about the last decided batch.
messages: what travels between driver and tasks. commands: what the rules ask of the outer world.
begin, prepare, seal, decide, finish, prove, replay: the rules, as generators that yield commands and receive
answers. faults: how a batch may stop. docs/exactly-once.md tells the whole story.
"""
