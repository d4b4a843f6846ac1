"""Production nodes with proxies between them: replication and the metadata quorum have listeners of their own, behind
proxies. Clients reach every node directly."""

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.nodes import NODE_IDS, Nodes, free_ports

from .proxy import Network

_PROXIED = ("REPLICATION", "CONTROLLER")


class Production(Nodes):
    listeners = ("PLAINTEXT", *_PROXIED)

    def __init__(self, folder: Path, settings: Mapping[str, object]) -> None:
        own = {"inter.broker.listener.name": "REPLICATION"} | {name: str(value) for name, value in settings.items()}
        super().__init__(folder, lambda _: own)
        self.nodes = list(NODE_IDS)
        places = [(node_id, listener) for node_id in NODE_IDS for listener in _PROXIED]
        self._proxies = dict(zip(places, free_ports(len(places)), strict=True))
        self.network = Network(
            self._owner_of,
            lambda: [process.pid for process in self._processes.values()],
        )

    def advertised(self, node_id: int, listener: str) -> str:
        port = self._proxies.get((node_id, listener))
        return super().advertised(node_id, listener) if port is None else f"127.0.0.1:{port}"

    def __enter__(self) -> Self:
        for (node_id, listener), port in self._proxies.items():
            self.network.proxy(node_id, port, self._ports[node_id, listener])
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.network.close()

    def _owner_of(self, process_id: int) -> int | None:
        return next((node for node, process in self._processes.items() if process.pid == process_id), None)
