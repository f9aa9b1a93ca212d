"""The exit status of commands that judge: 0 right, 1 wrong, 2 that could not be found out."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from eoslog.commands.session import in_our_terms
from eoslog.errors import EoslogError
from eoslog.protocol.batch import CorruptBatch
from eoslog.protocol.decode import PayloadTooLarge
from eoslog.protocol.errors import KafkaError
from eoslog.protocol.schema import ProtocolError

_NOT_JUDGED = 2
_REPORTED = (EoslogError, KafkaError, ProtocolError, CorruptBatch, PayloadTooLarge, OSError)


def judging(function: Callable[..., None]) -> Callable[..., None]:
    """Exit with status 2 for any failure: status 1 means that what is judged is wrong."""

    @wraps(function)
    def with_status(**options: Any) -> None:
        try:
            function(**options)
        except click.ClickException as error:
            error.show()
            raise click.exceptions.Exit(_NOT_JUDGED) from error
        except _REPORTED as error:
            _give_up(f"Error: {in_our_terms(str(error))}")
        except KeyboardInterrupt:
            _give_up("interrupted: nothing was proven")
        except click.exceptions.Exit:
            raise
        except Exception:
            _give_up(traceback.format_exc())

    return with_status


def _give_up(text: str) -> None:
    click.echo(text, err=True)
    raise click.exceptions.Exit(_NOT_JUDGED)
