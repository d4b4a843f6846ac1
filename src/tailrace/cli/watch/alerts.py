"""`tailrace alerts`: the process that tells people what is wrong, and what it takes to tell it otherwise.

run       watches, in the foreground; several of them with the same --group choose one that tells
rules     the rules that hold: the shipped ones, changed by a file
silence   nothing is told of a rule for a while
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from tailrace.cli import Actions, CommandError
from tailrace.cli.apps.keeping import add_keep_option, keep
from tailrace.cli.logs import add_log_options, start_logging
from tailrace.cli.output import note, print_rows
from tailrace.cli.session import add_client_options, key_and_value
from tailrace.cli.watch.targets import add_target_options, scraper_of, targets_of

if TYPE_CHECKING:
    from tailrace.apps.alerts.election import Election
    from tailrace.apps.alerts.rules import RuleFile

DESCRIPTION = "Tell people what is wrong with a cluster: rules over the metrics of its nodes."
EXAMPLES = """\
examples:
  tailrace alerts run --data ./data --rules alerts.toml
  tailrace alerts run --target one:9404 --target two:9404 --group alerts --bootstrap one:9092,two:9092
  tailrace alerts silence --for 2h --rule UnderReplicated --comment "disk is replaced" --silences silences.json

where alerts.toml says who is told, and may change the shipped rules or add to them:
  [send]
  webhooks = ["https://example.com/hook"]
  slack = ["https://hooks.slack.com/services/..."]
  commands = ["/usr/local/bin/page --team storage"]
  [[rule]]
  name = "UnderReplicated"
  for_seconds = 300
"""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def register(parser: argparse.ArgumentParser) -> None:
    actions = Actions(parser)
    run = actions.add("run", "watch a cluster, and tell", "run --data ./data --rules alerts.toml")
    add_target_options(run)
    run.add_argument("--rules", metavar="FILE", help="TOML with who is told, and other rules")
    run.add_argument("--silences", metavar="FILE", help="JSON with silences (default: next to --rules, silences.json)")
    run.add_argument("--group", metavar="NAME", help="a consumer group that chooses one of several such processes")
    run.add_argument(
        "--status",
        metavar="FILE",
        help="keep there what holds now, for `tailrace console --alerts FILE` and for the next start",
    )
    add_keep_option(run)
    add_client_options(run)
    add_log_options(run)
    run.set_defaults(run=_run)
    rules = actions.add("rules", "list the rules that hold", "rules --rules alerts.toml")
    rules.add_argument("--rules", metavar="FILE", help="TOML that changes the shipped ones")
    rules.set_defaults(run=_list_rules)
    silence = actions.add("silence", "tell nothing of a rule for a while", "silence --for 2h --rule NodeDown")
    silence.add_argument("--silences", metavar="FILE", default="silences.json", help="default: silences.json")
    silence.add_argument("--rule", default="*", metavar="NAME", help="default: all")
    silence.add_argument(
        "--label", action="append", default=[], type=key_and_value, metavar="KEY=VALUE", help="of the alert; repeatable"
    )
    silence.add_argument("--for", dest="seconds", type=_seconds, metavar="TIME", help="30m, 2h, 1d; 0s ends silences")
    silence.add_argument("--comment", default="", help="why")
    silence.set_defaults(run=_silence)


def _run(options: argparse.Namespace) -> int:
    return keep("alerts", lambda parent: _watch(options, parent)) if options.keep else _watch(options)


def _watch(options: argparse.Namespace, parent: int | None = None) -> int:
    """`parent` is a pipe that ends with the process that started this one."""
    from tailrace.apps.alerts.service import AlertService

    rule_file = _rule_file(options.rules)
    start_logging(options)
    silences = options.silences or (
        os.path.join(os.path.dirname(options.rules), "silences.json") if options.rules else None
    )
    service = AlertService(
        rule_file,
        scraper_of(options, options.command_config),
        targets_of(options),
        silences_path=silences,
        status_path=options.status,
        election=_election(options),
    )
    note(f"watching by {len(rule_file.rules)} rules")
    try:
        asyncio.run(_until_it_is_to_end(service.run(), parent))
    except KeyboardInterrupt:
        pass
    return 0


async def _until_it_is_to_end(work: Coroutine[Any, Any, None], parent: int | None) -> None:
    """A process that is told to end leaves its group, so that another tells at once."""
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    if parent is not None:
        loop.add_reader(parent, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        return


def _election(options: argparse.Namespace) -> Election | None:
    if not options.group:
        return None
    from tailrace.apps.alerts.election import Election
    from tailrace.real.cluster import open_cluster

    return Election(lambda: open_cluster(options.bootstrap, security=options.command_config), options.group)


def _rule_file(path: str | None) -> RuleFile:
    from tailrace.apps.alerts.defaults import DEFAULT_RULES
    from tailrace.apps.alerts.rules import RulesError, read_rules

    try:
        return read_rules(path, DEFAULT_RULES)
    except RulesError as error:
        raise CommandError(str(error)) from None


def _list_rules(options: argparse.Namespace) -> int:
    from tailrace.apps.alerts.prometheus import promql

    rules = _rule_file(options.rules).rules
    rows = [(rule.name, rule.severity, f"{rule.for_seconds:g} s", promql(rule), rule.runbook) for rule in rules]
    print_rows(("rule", "severity", "for", "holds while", "runbook"), rows)
    return 0


def _silence(options: argparse.Namespace) -> int:
    from tailrace.apps.alerts.silences import Silence, SilencesError, read_silences, write_silences

    now = time.time()
    try:
        silences = [each for each in read_silences(options.silences) if each.until > now]
        if options.seconds is not None:
            labels = dict(options.label)
            silences = [each for each in silences if (each.rule, each.labels) != (options.rule, labels)]
            if options.seconds:
                silences.append(Silence(options.rule, labels, now + options.seconds, options.comment))
            write_silences(options.silences, silences)
    except SilencesError as error:
        raise CommandError(str(error)) from None
    rows = [(each.rule, each.labels, f"{(each.until - now) / 60:.0f} min", each.comment) for each in silences]
    print_rows(("rule", "labels", "left", "comment"), rows)
    return 0


def _seconds(text: str) -> float:
    match = re.fullmatch(r"([0-9]+)([smhd])", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time such as 30m, 2h or 1d")
    return float(int(match[1]) * _UNITS[match[2]])
