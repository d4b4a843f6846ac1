"""Decisions of the authorizer that are not cached, on one core, in microseconds of processor time each.

A case is 10,000 ACLs: spread over many principals, all for one principal, prefixes of all lengths, or for everyone from
many hosts. The last figure is what a change of one ACL among them costs a node before its next decision.
"""

import random
import time
from collections.abc import Callable
from itertools import cycle
from typing import Any

from bench.measures import Figure, Plan
from tailrace.controller.security.authorizer import Authorizer, Resource
from tailrace.model.acls import ANY_PRINCIPAL, WILDCARD, Acl, Kind, Operation, PatternType, Permission
from tailrace.model.ids import Uuid

_COUNT = 10_000
_GOAL_US = 20.0
_HOST = "10.0.0.1"
_WHO = "User:alice"
_NAME = "department.team.service.topic-with-a-name-of-some-length"
# Decided in a row between two looks at the clock.
_ROW = 200

Acls = dict[Uuid, Acl]


def authorizer(plan: Plan) -> list[Figure]:
    figures = []
    for name, acls in (
        ("10,000 ACLs of 1,000 principals", _spread()),
        ("10,000 ACLs of one principal", _of_one()),
        ("10,000 prefixes of one principal, of all lengths", _prefixes()),
        ("10,000 ACLs for everyone, each from its host", _hosts()),
    ):
        took = plan.median(lambda acls=acls: _decision_us(acls, plan.seconds))  # type: ignore[misc]
        figures.append(Figure(f"decide, {name}", took, "us", _GOAL_US, None, "", lower_is_better=True))
    took = plan.median(lambda: _change_us(_spread(), plan.seconds))
    figures.append(Figure("one ACL of 10,000 changes", took, "us", None, None, "", lower_is_better=True))
    return figures


def _acls(make: Callable[[random.Random, int], dict[str, Any]]) -> Acls:
    source = random.Random(1)
    plain: dict[str, Any] = {
        "kind": Kind.TOPIC,
        "name": _NAME,
        "pattern_type": PatternType.LITERAL,
        "principal": _WHO,
        "host": WILDCARD,
        "operation": Operation.READ,
        "permission": Permission.ALLOW,
    }
    return {Uuid(number.to_bytes(16, "big")): Acl(**plain | make(source, number)) for number in range(_COUNT)}


def _spread() -> Acls:
    def make(source: random.Random, number: int) -> dict[str, Any]:
        pattern = PatternType.PREFIXED if number % 3 == 0 else PatternType.LITERAL
        name = _NAME[: source.randrange(4, len(_NAME))] + str(number)
        return {"principal": f"User:user-{number % 1000}", "name": name, "pattern_type": pattern}

    return _acls(make)


def _of_one() -> Acls:
    return _acls(lambda _source, number: {"name": f"topic-{number}", "operation": Operation(3 + number % 9)})


def _prefixes() -> Acls:
    def make(source: random.Random, number: int) -> dict[str, Any]:
        is_of_name = number < len(_NAME)
        name = _NAME[: number + 1] if is_of_name else "x" * source.randrange(1, 200) + str(number)
        return {"name": name, "pattern_type": PatternType.PREFIXED, "operation": Operation.WRITE}

    return _acls(make)


def _hosts() -> Acls:
    return _acls(lambda _source, number: {"principal": ANY_PRINCIPAL, "host": f"10.1.{number // 250}.{number % 250}"})


def _decision_us(acls: Acls, seconds: float) -> float:
    decider = Authorizer(["User:root"], allows_without_acl=False)
    decider.index.follow(acls)
    questions = cycle(
        [
            (who, _HOST, operation, Resource(Kind.TOPIC, name))
            for who in (_WHO, "User:user-7", "User:nobody")
            for operation in (Operation.READ, Operation.DESCRIBE)
            for name in (_NAME, _NAME + "7", "topic-7", "elsewhere")
        ]
    )
    count = 0
    start = time.process_time()
    while (took := time.process_time() - start) < seconds:
        for _ in range(_ROW):
            decider.decide(*next(questions))
        count += _ROW
    return took / count * 1e6


def _change_us(acls: Acls, seconds: float) -> float:
    decider = Authorizer([], allows_without_acl=False)
    decider.index.follow(acls)
    one, others = next(iter(acls.items())), dict(list(acls.items())[1:])
    both = cycle([others, {**others, one[0]: one[1]}])
    count = 0
    start = time.process_time()
    while (took := time.process_time() - start) < seconds:
        decider.index.follow(next(both))
        count += 1
    return took / count * 1e6
