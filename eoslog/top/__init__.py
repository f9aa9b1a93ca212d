"""`eoslog top`: what a cluster is doing, as `top` shows it for a machine.

`cluster_snapshot` asks the cluster, `columns` has the tables, `figures` makes rows of two snapshots, `text`
formats them (all pure), `view` draws them, `keys` reads the keyboard, `command` joins them.
"""
