"""The part of a schema registry that serializers ask, in memory, for tests of those who ask one.

Schemas are kept as they come, without any check: that is the registry's own work, and is tested there.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


class StandIn:
    def __init__(self) -> None:
        self.url = ""
        self.asked: list[str] = []
        self.user_info: str | None = None  # Asked for, if it is set.
        self.failing = False  # It answers, and cannot say anything now.
        self._schemas: list[dict] = []
        self._subjects: dict[str, list[int]] = {}
        self._lock = threading.Lock()

    def register(self, subject: str, schema: str, schema_type: str = "AVRO", references: list | None = None) -> int:
        body = {"schema": schema, "schemaType": schema_type, "references": references or []}
        with self._lock:
            if body not in self._schemas:
                self._schemas.append(body)
            schema_id = self._schemas.index(body) + 1
            versions = self._subjects.setdefault(subject, [])
            if schema_id not in versions:
                versions.append(schema_id)
            return schema_id

    def answer(self, method: str, path: str, body: dict) -> tuple[int, object]:
        if found := re.fullmatch(r"/schemas/ids/(\d+)", path):
            schema_id = int(found[1])
            if not 1 <= schema_id <= len(self._schemas):
                return 404, {"error_code": 40403, "message": f"Schema {schema_id} not found"}
            return 200, self._schemas[schema_id - 1]
        if found := re.fullmatch(r"/schemas/ids/(\d+)/versions", path):
            known = [(subject, ids) for subject, ids in self._subjects.items() if int(found[1]) in ids]
            return 200, [{"subject": subject, "version": ids.index(int(found[1])) + 1} for subject, ids in known]
        if found := re.fullmatch(r"/subjects/([^/]+)/versions/(latest|\d+)", path):
            subject = unquote(found[1])
            versions = self._subjects.get(subject, [])
            version = len(versions) if found[2] == "latest" else int(found[2])
            if not 1 <= version <= len(versions):
                return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
            schema_id = versions[version - 1]
            return 200, {"subject": subject, "version": version, "id": schema_id, **self._schemas[schema_id - 1]}
        if method == "POST" and (found := re.fullmatch(r"/subjects/([^/]+)(/versions)?", path)):
            kind = body.get("schemaType") or "AVRO"
            schema_id = self.register(unquote(found[1]), body["schema"], kind, body.get("references"))
            return 200, {"id": schema_id, "version": 1, "subject": unquote(found[1]), **self._schemas[schema_id - 1]}
        return 404, {"error_code": 40401, "message": "not found"}


@contextmanager
def stand_in() -> Iterator[StandIn]:
    registry = StandIn()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, body: dict) -> None:
            registry.asked.append(f"{self.command} {self.path}")
            status, found = registry.answer(self.command, urlsplit(self.path).path, body)
            if registry.user_info is not None and self.headers.get("Authorization") != registry.user_info:
                status, found = 401, {"error_code": 401, "message": "who are you?"}
            if registry.failing:
                status, found = 503, {"error_code": 50301, "message": "the brokers cannot be asked"}
            content = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    registry.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
