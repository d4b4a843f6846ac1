"""Circular flow of information: transactions that have read each other's writes (G1c), directly or over others.

At read_committed a transaction reads only what was committed before, so these reads cannot form a circle. With reads at
read_uncommitted, or with the order in which writes came to stand, circles are normal in Kafka: transactions
interleave. Strongly connected components by Tarjan's algorithm, without recursion, linear in reads and writes.
"""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.verify.facts import Outcome, Transaction
from tailrace.verify.findings import Findings
from tailrace.verify.history import History
from tailrace.verify.writes import writers

Graph = list[set[int]]  # To each transaction, by its number, those that depend on it.


def check_cycles(history: History, findings: Findings) -> None:
    numbers = {transaction: number for number, transaction in enumerate(history.transactions)}
    flow: Graph = [set() for _ in numbers]
    every: Graph = [set() for _ in numbers]
    for reader in history.transactions:
        if reader.outcome is Outcome.FAIL:
            continue
        for writer, is_committed in _sources(history, reader):
            every[numbers[writer]].add(numbers[reader])
            if is_committed:
                flow[numbers[writer]].add(numbers[reader])
    for before, after in _neighbours(history):
        every[numbers[before]].add(numbers[after])
    circular = {number for circle in _circles(flow) for number in _tell(history, findings, "circular-flow", circle)}
    for circle in _circles(every):
        if circular.isdisjoint(circle):
            _tell(history, findings, "write-cycle", circle)


def _sources(history: History, reader: Transaction) -> Iterator[tuple[Transaction, bool]]:
    """The other transactions whose writes it has read, where there is no doubt, and whether at read_committed."""
    for partition, offset, is_committed in reader.inputs:
        found = writers(history, partition, offset, partition.reads[offset].value)
        writer = found[0].transaction if len(found) == 1 else None
        if writer is not None and writer is not reader and writer.outcome is not Outcome.FAIL:
            yield writer, is_committed


def _neighbours(history: History) -> Iterator[tuple[Transaction, Transaction]]:
    """Transactions whose committed writes follow each other in a partition."""
    for partition in history.partitions.values():
        before: Transaction | None = None
        for attempt in sorted(partition.acknowledged, key=lambda attempt: attempt.offset):
            after = attempt.transaction
            if after is None or after.outcome is not Outcome.OK:
                continue
            if before is not None and before is not after:
                yield before, after
            before = after


def _tell(history: History, findings: Findings, kind: str, circle: list[int]) -> list[int]:
    shown = sorted((history.transactions[number] for number in circle), key=lambda transaction: transaction.line)
    names = ", ".join(f"process {each.process} (begun in line {each.line})" for each in shown[:5])
    more = f" and {len(shown) - 5} more" if len(shown) > 5 else ""
    how = "have read each other's writes" if kind == "circular-flow" else "depend on each other's reads and writes"
    findings.add(kind, shown[-1].line, f"the transactions of {names}{more} {how} in a circle")
    return circle


def _circles(graph: Graph) -> Iterator[list[int]]:
    """The strongly connected components of more than one node."""
    order = [0] * len(graph)  # When it was met, from 1 on; 0: not yet.
    lowest = [0] * len(graph)
    is_open = [False] * len(graph)
    opened: list[int] = []
    met = 0
    for root in range(len(graph)):
        if order[root]:
            continue
        path: list[tuple[int, Iterator[int]]] = [(root, iter(graph[root]))]
        met += 1
        order[root] = lowest[root] = met
        opened.append(root)
        is_open[root] = True
        while path:
            node, edges = path[-1]
            for other in edges:
                if not order[other]:
                    met += 1
                    order[other] = lowest[other] = met
                    opened.append(other)
                    is_open[other] = True
                    path.append((other, iter(graph[other])))
                    break
                if is_open[other]:
                    lowest[node] = min(lowest[node], order[other])
            else:
                path.pop()
                if path:
                    lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[node])
                if lowest[node] == order[node]:
                    circle = []
                    while is_open[node]:
                        circle.append(opened.pop())
                        is_open[circle[-1]] = False
                    if len(circle) > 1:
                        yield circle
