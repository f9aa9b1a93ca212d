"""`eoslog top`: what a cluster is doing, as `top` shows it for a machine.

`look` asks the cluster, `figures` makes rates and totals of two snapshots, `text` formats them (both pure),
`view` draws them, `keys` reads the keyboard, `command` joins them.
"""
