"""The commands of `eoslog`, one module each. The `command` of each is in the table of `eoslog.cli`."""
