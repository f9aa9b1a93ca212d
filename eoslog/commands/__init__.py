"""The commands of `eoslog`, a module each; each has a `command` for the table in `eoslog.cli`."""
