"""Three nodes on hosts of their own, with links that lose packets in one direction and tell nobody.

A host is a network namespace with one card, and a bridge joins them all; the test sits at the bridge, in a namespace
too, and reaches every node. Each host knows the hardware addresses of the others by heart. A link loses what one host
sends another once that host knows a wrong address: nobody takes such packets, nobody answers them, and the way back is
as it was. So it needs no firewall in the kernel, only `ip` and the right to make namespaces.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest

from tests.nodes import NODE_IDS, Nodes

CLIENTS = 254  # The number of the bridge, where the clients are.
_NOBODY = 99  # The hardware address that no card has.
_SECONDS_MAX = 20.0


class Hosts(Nodes):
    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        super().__init__(folder, lambda _: settings)
        self._lost: set[tuple[int, int]] = set()

    def bound(self, node_id: int, listener: str) -> str:
        return f"{_address(node_id)}:{self._ports[node_id, listener]}"

    def launcher(self, node_id: int) -> list[str]:
        return ["ip", "netns", "exec", _namespace(node_id)]

    def __enter__(self) -> Self:
        _build()
        try:
            return super().__enter__()
        except BaseException:
            _tear_down()
            raise

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        _tear_down()

    def lose(self, source: int, target: int) -> None:
        """From now on nothing that `source` sends reaches `target`."""
        self._lost.add((source, target))
        _learn(source, target, _NOBODY)

    def heal(self) -> None:
        while self._lost:
            source, target = self._lost.pop()
            _learn(source, target, target)

    def half_open(self) -> list[str]:
        """Connections between nodes that one end takes for established and the other does not know."""
        ends = {end for node_id in NODE_IDS for end in _established(node_id)}
        mine = {_address(node_id) for node_id in NODE_IDS}
        return [
            f"{here} of {there}"
            for here, there in ends
            if here[0] in mine and there[0] in mine and (there, here) not in ends
        ]


@contextmanager
def among_clients() -> Iterator[None]:
    """What this thread starts meanwhile, threads and processes, is at the bridge. While `Hosts` are there."""
    here = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{_namespace(CLIENTS)}", os.O_RDONLY)
    _enter(there)
    try:
        yield
    finally:
        _enter(here)
        os.close(here)
        os.close(there)


def need_namespaces() -> None:
    """Skips the test where namespaces cannot be made."""
    name = f"{_namespace(0)}-probe"
    try:
        made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, timeout=10, check=False)
    except FileNotFoundError:
        pytest.skip("there is no program `ip`: Debian has it in iproute2")
    if made.returncode != 0:
        pytest.skip(f"no network namespace may be made here: {made.stderr.strip()}")
    veth = subprocess.run(
        ["ip", "-n", name, "link", "add", "probe", "type", "veth"],
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    )
    _ip("netns", "del", name)
    if veth.returncode != 0:
        pytest.skip(f"the kernel has no pairs of network cards: {veth.stderr.strip()}")


def _build() -> None:
    hub = _namespace(CLIENTS)
    _ip("netns", "add", hub)
    _ip("-n", hub, "link", "set", "lo", "up")
    _ip("-n", hub, "link", "add", "card", "address", _hardware(CLIENTS), "type", "bridge")
    _ip("-n", hub, "link", "set", "card", "up")
    _ip("-n", hub, "address", "add", f"{_address(CLIENTS)}/24", "dev", "card")
    for node_id in NODE_IDS:
        host, port = _namespace(node_id), f"port{node_id}"
        _ip("netns", "add", host)
        _ip("-n", hub, "link", "add", port, "type", "veth", "peer", "name", "card", "netns", host)
        _ip("-n", hub, "link", "set", port, "master", "card", "up")
        _ip("-n", host, "link", "set", "lo", "up")
        _ip("-n", host, "link", "set", "card", "address", _hardware(node_id), "up")
        _ip("-n", host, "address", "add", f"{_address(node_id)}/24", "dev", "card")
    everyone = (*NODE_IDS, CLIENTS)
    for source in everyone:
        for target in everyone:
            if source != target:
                _learn(source, target, target)


def _tear_down() -> None:
    for number in (*NODE_IDS, CLIENTS):
        subprocess.run(
            ["ip", "netns", "del", _namespace(number)], capture_output=True, timeout=_SECONDS_MAX, check=False
        )


def _learn(source: int, target: int, hardware: int) -> None:
    words = ("neighbour", "replace", _address(target), "lladdr", _hardware(hardware), "nud", "permanent", "dev", "card")
    _ip("-n", _namespace(source), *words)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=_SECONDS_MAX, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"


def _namespace(number: int) -> str:
    return f"tailrace-{os.getpid()}-{number}"


def _address(number: int) -> str:
    return f"10.77.0.{number}"


def _hardware(number: int) -> str:
    return f"02:00:00:00:00:{number:02x}"


def _enter(namespace: int) -> None:
    # `os.setns` came with Python 3.12.
    library = ctypes.CDLL(None, use_errno=True)
    if library.setns(namespace, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot enter a network namespace")


def _established(node_id: int) -> set[tuple[tuple[str, int], tuple[str, int]]]:
    """(here, there) of each connection of a host, as its kernel has it."""
    table = subprocess.run(
        ["ip", "netns", "exec", _namespace(node_id), "cat", "/proc/net/tcp"],
        capture_output=True,
        text=True,
        timeout=_SECONDS_MAX,
        check=True,
    ).stdout
    lines = [line.split() for line in table.splitlines()[1:]]
    return {(_place(words[1]), _place(words[2])) for words in lines if words[3] == "01"}


def _place(text: str) -> tuple[str, int]:
    """`0100007F:0050` is 127.0.0.1:80."""
    host, _, port = text.partition(":")
    return ".".join(str(byte) for byte in reversed(bytes.fromhex(host))), int(port, 16)
