"""The command line. A command's modules are imported only when the command is called.

So a broker starts without the libraries of other commands, and `eoslog --help` without any.
"""

from __future__ import annotations

from importlib import import_module

import click

import eoslog

# name -> (module that has a `command`, its line in `eoslog --help`)
COMMANDS = {
    "broker": ("eoslog.commands.broker", "Run a Kafka-compatible broker."),
    "topics": ("eoslog.commands.topics", "List, describe, create, change and delete topics."),
    "groups": ("eoslog.commands.groups", "Show consumer groups; reset and delete their offsets."),
    "transactions": ("eoslog.commands.transactions", "Show transactions; find and abort hanging ones."),
    "acls": ("eoslog.commands.acls", "List, add and remove access rules; show which ones a query needs."),
    "users": ("eoslog.commands.users", "List, add and remove users with passwords (SCRAM)."),
    "log": ("eoslog.commands.log", "Read and verify log files, without a broker."),
    "backup": ("eoslog.commands.backup", "Copy the data directory of a broker, which may be running."),
    "produce": ("eoslog.commands.produce", "Write lines of standard input to a topic."),
    "consume": ("eoslog.commands.consume", "Print the records of a topic."),
    "top": ("eoslog.top.command", "Watch brokers, topics, groups and open transactions live."),
    "exporter": ("eoslog.exporter", "Serve metrics of a whole cluster for Prometheus."),
    "doctor": ("eoslog.doctor.command", "Show what slows Spark down with eoslog, or would fail."),
    "rehearse": ("eoslog.rehearse.command", "Certify a cluster: the commit protocol, killed at each step."),
    "checkpoint": ("eoslog.checkpoint.command", "Show, check and edit Spark's checkpoint of a query."),
    "shadow": ("eoslog.shadow.command", "Compare a new version of a query with the running one."),
    "audit": ("eoslog.audit.command", "Prove that a topic, or a table, has a topic's records exactly once."),
    "prove": ("eoslog.prove.command", "Prove what a sink wrote, for an auditor; check that on a copy."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported by name."""

    def list_commands(self, context: click.Context) -> list[str]:
        """All names, in the table's order."""
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Import the command; None for a name that is not in the table."""
        if name not in COMMANDS:
            return None
        command: click.Command = import_module(COMMANDS[name][0]).command
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table, importing none."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(eoslog.__version__, prog_name="eoslog")
def main() -> None:
    """Exactly-once between Spark and a Kafka log."""
