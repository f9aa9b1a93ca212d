"""The names of one rehearsal. Nothing else is ever written to, ended or deleted. Pure."""

from __future__ import annotations

from typing import NamedTuple

from eoslog.connector.commit.transactional_ids import Sink

PREFIX = "eoslog-rehearsal-"
"""How the names of every rehearsal begin: rights can be given for it once."""


class NotOurs(Exception):
    """A name that this rehearsal did not make: it must not be touched."""


class ScratchNames(NamedTuple):
    """The names of the run `token`, which no other run has."""

    token: str

    @property
    def stem(self) -> str:
        """What every name of this run is, or begins with, before a full stop."""
        return f"{PREFIX}{self.token}"

    def name(self, word: str) -> str:
        """The topic, group or transactional id of one check."""
        return f"{self.stem}.{word}"

    def sink(self, word: str) -> Sink:
        """The sink of one check."""
        return Sink(self.name(word))

    def check(self, name: str) -> str:
        """The name. Raises NotOurs if it is not one of this run."""
        if not name.startswith(f"{self.stem}."):
            raise NotOurs(f"{name} is not a name of the rehearsal {self.stem}")
        return name
