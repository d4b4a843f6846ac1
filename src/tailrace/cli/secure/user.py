"""`tailrace user create|list|delete`: who may log in by SCRAM. Works against any Kafka."""

from __future__ import annotations

import argparse
import os

from tailrace.cli import Actions, CommandError
from tailrace.cli.output import note, print_json, print_rows
from tailrace.cli.secure.passwords import find_mechanism, new_password, password_from_environment, read_password
from tailrace.cli.session import Work, add_client_work
from tailrace.client.metadata import Cluster
from tailrace.client.security.users import ITERATIONS, delete_credential, describe_users, set_credential
from tailrace.model.security import ScramMechanism

DESCRIPTION = "Create, list and delete users that log in by SCRAM."
EXAMPLES = """\
examples:
  tailrace user create alice                             asks for the password
  tailrace user create alice --password-file alice.txt   its first line; - is standard input
  tailrace user create alice --generate                  prints a new password, once
  tailrace user list --json
  tailrace user delete alice
"""

_MECHANISMS = tuple(each.mechanism_name for each in ScramMechanism)
_SALT_BYTES = 20


def register(parser: argparse.ArgumentParser) -> None:
    actions = Actions(parser)
    create = _add_action(actions, "create", _create, "create a user, or give it a new password", "create alice")
    create.add_argument("name")
    password = create.add_mutually_exclusive_group()
    password.add_argument("--password-file", metavar="FILE", help="the password is its first line; - for stdin")
    password.add_argument("--password-env", metavar="VARIABLE", help="the password is in this variable")
    password.add_argument("--generate", action="store_true", help="make a new password and print it")
    create.add_argument("--mechanism", choices=_MECHANISMS, default=_MECHANISMS[-1], help="(default: %(default)s)")
    create.add_argument("--iterations", type=int, default=ITERATIONS, help="4096 to 16384 (default: %(default)s)")
    _add_action(actions, "list", _list, "list users and their mechanisms", "list --json")
    delete = _add_action(actions, "delete", _delete, "delete a user's credentials", "delete alice")
    delete.add_argument("name")
    delete.add_argument("--mechanism", choices=_MECHANISMS, help="only that one (default: all that it has)")


def _add_action(actions: Actions, name: str, work: Work, help_text: str, example: str) -> argparse.ArgumentParser:
    parser = actions.add(name, help_text, example)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    add_client_work(parser, work)
    return parser


async def _create(cluster: Cluster, options: argparse.Namespace) -> int:
    password = _choose_password(options)
    await set_credential(
        cluster,
        options.name,
        find_mechanism(options.mechanism),
        password,
        salt=os.urandom(_SALT_BYTES),
        iterations=options.iterations,
    )
    facts = {"user": options.name, "mechanism": options.mechanism, "iterations": options.iterations}
    if options.json:
        print_json(facts | ({"password": password} if options.generate else {}))
    elif options.generate:
        print(password)
    note(f"{options.name} may log in by {options.mechanism}")
    return 0


def _choose_password(options: argparse.Namespace) -> str:
    if options.generate:
        return new_password()
    if options.password_env is not None:
        return password_from_environment(options.password_env)
    return read_password(options.password_file)


async def _list(cluster: Cluster, options: argparse.Namespace) -> int:
    rows = [
        (result.user, ScramMechanism(info.mechanism).mechanism_name, info.iterations)
        for result in await describe_users(cluster)
        for info in result.credential_infos
    ]
    if options.json:
        print_json([{"user": user, "mechanism": name, "iterations": count} for user, name, count in rows])
    else:
        print_rows(("user", "mechanism", "iterations"), rows)
    return 0


async def _delete(cluster: Cluster, options: argparse.Namespace) -> int:
    if options.mechanism is not None:
        mechanisms = [find_mechanism(options.mechanism)]
    else:
        (described,) = await describe_users(cluster, [options.name])
        if described.error_code:
            raise CommandError(f"{options.name} has no credentials: {described.error_message}")
        mechanisms = [ScramMechanism(info.mechanism) for info in described.credential_infos]
    # A request may name a user once.
    for mechanism in mechanisms:
        await delete_credential(cluster, options.name, mechanism)
    names = [mechanism.mechanism_name for mechanism in mechanisms]
    if options.json:
        print_json({"user": options.name, "deleted": names})
    note(f"{options.name} may not log in by {', '.join(names)} any more; connections that it has live on")
    return 0
