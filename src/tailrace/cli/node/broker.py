"""`tailrace broker`: one production node in the foreground, with its settings in a file.

Unlike `up` it never makes a data folder its own: an empty one may be a disk that was not mounted, and a broker that
starts there would answer with no data at all. `tailrace format` is the explicit step.
"""

from __future__ import annotations

import argparse

from tailrace.cli import CommandError
from tailrace.cli.logs import add_log_options, start_logging

DESCRIPTION = "Start one node in the foreground, with the settings of a file."
EXAMPLES = """\
example:
  tailrace format --config node.toml && tailrace broker --config node.toml

where node.toml holds, with Kafka's own names:
  node.id = 1
  listeners = "PLAINTEXT://127.0.0.1:9092"
  log.dirs = ["/var/lib/tailrace"]

and for one broker of a cluster whose controllers have their own hosts:
  node.id = 1
  process.roles = ["broker"]
  controller.quorum.bootstrap.servers = ["one:9093", "two:9093", "three:9093"]
  controller.listener.names = ["CONTROLLER"]
  listeners = "PLAINTEXT://:9092"
  advertised.listeners = "PLAINTEXT://queue-1.example:9092"
  log.dirs = ["/var/lib/tailrace"]
"""


def register(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c",
        "--config",
        required=True,
        metavar="FILE",
        help="TOML whose keys are Kafka's settings, or a .properties file of Kafka",
    )
    add_log_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from tailrace.cli.node.settings_file import read_settings
    from tailrace.cli.node.storage import unformatted_folders

    config = read_settings(options.config)
    if unformatted := unformatted_folders(config):
        raise CommandError(
            f"{unformatted[0]} holds no meta.properties, so it was never formatted, or its disk is not mounted; "
            f"if it is new, run: tailrace format --config {options.config}"
        )
    start_logging(options)
    from tailrace.cli.node.process import run_broker

    return run_broker(config)
