"""All paths as one ASGI application."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from tailrace.apps.registry.access.callers import Door
from tailrace.apps.registry.errors import RegistryError
from tailrace.apps.registry.service import Registry
from tailrace.apps.registry.web.api import Api, Call
from tailrace.apps.registry.web.forwarding import Forwarding
from tailrace.apps.registry.web.http import refusal
from tailrace.apps.registry.web.paths import Paths
from tailrace.apps.registry.web.schemas import schema_routes
from tailrace.apps.registry.web.settings import setting_routes
from tailrace.apps.registry.web.subjects import subject_routes


def make_app(registry: Registry, door: Door, forwarding: Forwarding) -> ASGIApp:
    api = Api(registry, door, forwarding)

    async def no_associations(call: Call) -> Response:
        """The newest serializers ask for them first, and go on where a registry does not have that feature."""
        del call
        raise RegistryError(404, 40401, "HTTP 404 Not Found: this registry has no associations")

    app = Starlette(
        routes=[
            *schema_routes(api),
            *subject_routes(api),
            *setting_routes(api),
            *(
                api.route(method, "/associations/{rest:path}", no_associations)
                for method in ("GET", "POST", "PUT", "DELETE")
            ),
        ],
        exception_handlers={HTTPException: _refuse},
    )
    app.router.redirect_slashes = False
    return Paths(app)


async def _refuse(request: Request, error: Exception) -> Response:
    """Paths and methods that there are none of."""
    del request
    assert isinstance(error, HTTPException), "it is handled for these alone"
    return refusal(RegistryError(error.status_code, error.status_code, f"HTTP {error.status_code} {error.detail}"))
