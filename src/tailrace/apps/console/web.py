"""What all pages share: who asks, how a page is rendered, how a failure is told, and how a change is made.

A page is a function of (Console, Visit, Request). `show` and `change` make routes of it. Every change is a POST with
the form's token, and is first shown in words: only the same form with its answer carries it out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib import resources
from typing import Any
from urllib.parse import parse_qsl, quote

from jinja2 import Environment, PackageLoader, Template, select_autoescape
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from tailrace import __version__
from tailrace.apps.console import formats
from tailrace.apps.console.balancing import Balancing
from tailrace.apps.console.charts import Chart, draw
from tailrace.apps.console.doors.oidc import Oidc
from tailrace.apps.console.doors.rights import may_on_topic
from tailrace.apps.console.doors.visitors import COOKIE, Visit, Visitors, new_cookie
from tailrace.apps.console.history import DAY_S, HOUR_S
from tailrace.apps.console.picture import Picture
from tailrace.apps.console.reading.choosing import Choosers
from tailrace.apps.console.reading.masks import Masks, Rule
from tailrace.apps.console.reading.views import View
from tailrace.apps.console.watcher import Watcher
from tailrace.model.acls import Operation
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.settings import INT_MAX

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
# Of numbers that Kafka's fields can hold.
_DIGITS_MAX = 19
# A form is a few settings, or a record to produce.
FORM_BYTES_MAX = 2 << 20
_STATUS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.GROUP_ID_NOT_FOUND: 404,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: 403,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: 403,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: 403,
    ErrorCode.RESOURCE_NOT_FOUND: 404,
    ErrorCode.INVALID_TOPIC_EXCEPTION: 404,
    ErrorCode.INVALID_REQUEST: 400,
    ErrorCode.NETWORK_EXCEPTION: 503,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: 503,
}


@dataclass(frozen=True)
class Options:
    interval_s: float = 5.0
    groups_max: int = 1000
    series_max: int = 4000
    readers_max: int = 200
    is_read_only: bool = False
    is_behind_tls: bool = False
    alerts_file: str | None = None
    pipelines_folder: str | None = None
    masks: tuple[Rule, ...] = ()


class Console:
    def __init__(
        self,
        watcher: Watcher,
        visitors: Visitors,
        options: Options,
        *,
        bootstrap: str,
        balancing: Balancing,
        oidc: Oidc | None = None,
    ) -> None:
        self.watcher = watcher
        self.visitors = visitors
        self.options = options
        self.bootstrap = bootstrap
        self.oidc = oidc
        self.balancing = balancing
        self.choosers = Choosers()
        self._templates = Environment(
            loader=PackageLoader("tailrace.apps.console"), autoescape=select_autoescape(default=True), trim_blocks=True
        )
        self._templates.filters |= formats.FILTERS
        self._templates.globals |= {"version": __version__, "style_tag": _file_tag("style.css")}
        self._templates.globals["script_tag"] = _file_tag("console.js")

    def template(self, name: str) -> Template:
        return self._templates.get_template(name)

    async def picture(self, visit: Visit) -> Picture:
        return await visit.picture(
            self.watcher,
            age_max_ms=int(self.options.interval_s * 1000),
            groups_max=self.options.groups_max,
            visits=self.visitors.count,
        )

    def chart(self, request: Request, kind: str, name: str) -> Chart:
        span_s = DAY_S if _span(request) == "day" else HOUR_S
        now_s = self.watcher.now_s()
        points = self.watcher.history.points(kind, name, now_s=now_s, span_s=span_s)
        return draw(points, now_s=now_s, span_s=span_s)

    def rate(self, kind: str, name: str) -> float | None:
        return self.watcher.history.latest(kind, name, now_s=self.watcher.now_s())

    def html(self, request: Request, template: str, *, status: int = 200, **context: Any) -> Response:
        cookie = request.cookies.get(COOKIE) or new_cookie()
        context |= {
            "request": request,
            "path": request.url.path,
            "token": self.visitors.token(cookie),
            "said": request.query_params.get("said"),
            "span": _span(request),
            "bootstrap": self.bootstrap,
            "failure": self.watcher.failure,
            "is_read_only": self.options.is_read_only,
            "must_log_in": self.visitors.must_log_in,
            "has_schemas": self.visitors.has_schemas,
        }
        text = self.template(template).render(context)
        response = HTMLResponse(text, status_code=status, headers=HEADERS)
        if request.cookies.get(COOKIE) != cookie:
            self.set_cookie(response, cookie)
        return response

    def failed(self, request: Request, title: str, reason: str, status: int) -> Response:
        return self.html(request, "failed.html", title=title, reason=reason, status=status, user=None)

    def set_cookie(self, response: Response, cookie: str) -> None:
        response.set_cookie(COOKIE, cookie, httponly=True, samesite="strict", secure=self.options.is_behind_tls)

    async def view(self, visit: Visit, topic: str, *, is_raw: bool = False) -> View:
        """How this visitor sees the records of a topic. Whoever may ALTER it sees what is masked for others; fields
        can only be masked in what is opened."""
        masks = Masks(self.options.masks, topic)
        if masks and visit.user is not None and await may_on_topic(visit.cluster, topic, Operation.ALTER):
            masks = Masks((), topic)
        return View(schemas=None if is_raw and not masks else visit.schemas, masks=masks)


Page = Callable[[Console, Visit, Request], Awaitable[Response]]


def show(path: str, page: Page, console: Console) -> Route:
    async def endpoint(request: Request) -> Response:
        visit = await console.visitors.find_fresh(request.cookies.get(COOKIE))
        if visit is None:
            return RedirectResponse(f"/login?to={quote(str(request.url.path), safe='/')}", 303)
        return await _told(console, page, visit, request)

    return Route(path, endpoint, methods=["GET"])


def change(path: str, page: Page, console: Console) -> Route:
    async def endpoint(request: Request) -> Response:
        cookie = request.cookies.get(COOKIE)
        visit = await console.visitors.find_fresh(cookie)
        if visit is None:
            return RedirectResponse("/login", 303)
        if console.options.is_read_only:
            return console.failed(request, "Nothing was changed", "This console was started with --read-only.", 403)
        form = await read_form(request)
        if form is None:
            return console.failed(request, "The form is too large", f"It has at most {FORM_BYTES_MAX:,} bytes.", 413)
        if not console.visitors.is_token_good(cookie, form.get("token", "")):
            reason = "The page is older than this console, or the form came from elsewhere. Load the page again."
            return console.failed(request, "The form was not taken", reason, 403)
        request.state.form = form
        try:
            return await _told(console, page, visit, request)
        finally:
            visit.forget_picture()

    return Route(path, endpoint, methods=["POST"])


async def read_form(request: Request) -> dict[str, str] | None:
    """The fields of a form as browsers send it; None if it is too large."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > FORM_BYTES_MAX:
            return None
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=100))


async def _told(console: Console, page: Page, visit: Visit, request: Request) -> Response:
    try:
        return await page(console, visit, request)
    except KafkaError as error:
        reason = error.message or error.code.name
        title = {400: "This cannot be done", 403: "You may not do this", 404: "There is no such thing"}.get(
            _STATUS.get(error.code, 502), "The cluster did not do it"
        )
        text = reason if error.code is ErrorCode.NETWORK_EXCEPTION else f"{reason} ({error.code.name})"
        return console.failed(request, title, text, _STATUS.get(error.code, 502))


def confirmed(
    console: Console,
    visit: Visit,
    request: Request,
    *,
    title: str,
    words: list[str],
    word: str = "yes",
    is_grave: bool = False,
    is_asked: bool = False,
    typed: str | None = None,
) -> Response | None:
    """None once the visitor has confirmed. Until then a page that says in words what will happen; what is grave wants
    the name of the thing to be typed. `is_asked`: the cluster was asked whether it would. What is `typed`,
    such as a password, is so on that page, in the field `secret`, and never sent back to a browser."""
    form: dict[str, str] = request.state.form
    if form.get("confirm") == word and (typed is None or form.get("secret")):
        return None
    kept = {name: value for name, value in form.items() if name not in ("token", "confirm", "secret")}
    wrong = "confirm" in form
    return console.html(
        request,
        "confirm.html",
        user=visit.user,
        title=title,
        words=words,
        word=word,
        is_grave=is_grave,
        is_asked=is_asked,
        typed=typed,
        kept=kept,
        wrong=wrong,
    )


def done(path: str, said: str) -> Response:
    return RedirectResponse(f"{path}?said={quote(said)}", 303)


def field(request: Request, name: str) -> str:
    """Of the form that was posted."""
    form: dict[str, str] = request.state.form
    return form.get(name, "").strip()


def number(request: Request, name: str, *, maximum: int = INT_MAX) -> int | None:
    """None if it is empty. Raises KafkaError for what is no whole number that the field of a request can hold."""
    text = field(request, name)
    if not text:
        return None
    found = whole_number(text, maximum)
    if found is None:
        reason = f"{name} is {text[:50]!r}, which is no whole number from 0 to {maximum}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    return found


def whole_number(text: str, maximum: int) -> int | None:
    """None for what is none from 0 up to there."""
    if not text.isascii() or not text.isdigit() or len(text) > _DIGITS_MAX or int(text) > maximum:
        return None
    return int(text)


def _span(request: Request) -> str:
    return "day" if request.query_params.get("span") == "day" else "hour"


def _file_tag(name: str) -> str:
    """Changes with the file, so that a browser does not keep an old one."""
    import hashlib

    content = resources.files("tailrace.apps.console").joinpath("static", name).read_bytes()
    return hashlib.sha256(content).hexdigest()[:12]
