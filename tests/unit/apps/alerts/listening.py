"""A web server on loopback: what was posted to it, and pages that it tells. It may refuse, or hang."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Web:
    def __init__(self) -> None:
        self.posted: list[tuple[str, Any]] = []  # By path, in order.
        self.refuses = 0  # So many posts are answered 500.
        self.pages: dict[str, str] = {}
        self.may_answer = threading.Event()  # Posts to /slow wait for it.
        self.port = 0

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def at(self, path: str) -> list[Any]:
        return [document for each, document in list(self.posted) if each == path]

    def told(self, path: str) -> list[tuple[str, str]]:
        """Of a webhook: names of alerts and whether they begin or end."""
        return [(each["labels"]["alertname"], each["status"]) for told in self.at(path) for each in told["alerts"]]


@contextmanager
def listening() -> Iterator[Web]:
    web = Web()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/slow":
                web.may_answer.wait(60)
            if web.refuses:
                web.refuses -= 1
                self.send_error(500)
                return
            web.posted.append((self.path, document))
            self.send_response(200)
            self.end_headers()

        def do_GET(self) -> None:
            text = web.pages.get(self.path)
            self.send_response(404 if text is None else 200)
            self.send_header("Content-Length", str(len(text or "")))
            self.end_headers()
            self.wfile.write((text or "").encode())

        def log_message(self, *_: object) -> None:
            """Nothing is written."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        web.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield web
        finally:
            web.may_answer.set()
            server.shutdown()
            thread.join()
