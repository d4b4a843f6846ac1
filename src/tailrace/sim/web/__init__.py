"""The simulated Web: answers from a table, and may be away."""

from collections.abc import Callable
from urllib.parse import urlsplit

from tailrace.model.ports import WebQuestion, WebRefusalError


class SimWeb:
    """`pages` has what is found under a path; whatever is not there is answered with 404. While it `is_away`, nobody
    answers."""

    def __init__(self, pages: dict[str, bytes] | None = None) -> None:
        self.pages = {} if pages is None else pages
        self.is_away = False
        # Of several servers those that are away.
        self.away_hosts: set[str] = set()
        self.asked: list[str] = []
        # Called before each answer.
        self.on_question: Callable[[str], None] = lambda _path: None

    def ask(self, question: WebQuestion) -> bytes:
        where = urlsplit(question.url)
        path = where.path
        self.asked.append(path)
        self.on_question(path)
        if self.is_away or where.hostname in self.away_hosts:
            raise ConnectionRefusedError("nobody listens there")
        page = self.pages.get(path)
        if page is None:
            refusal = WebRefusalError("it answers 404 Not Found")
            refusal.status = 404
            raise refusal
        return page
