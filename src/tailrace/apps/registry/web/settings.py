"""/config, /mode, /contexts: what holds for a subject, a context, or all; and what the registry says of itself."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response
from starlette.routing import Route

from tailrace import __version__
from tailrace.apps.registry import errors
from tailrace.apps.registry.state.deleting import (
    config_answer,
    decide_config,
    decide_config_deletion,
    decide_context_deletion,
    decide_mode,
    decide_mode_deletion,
)
from tailrace.apps.registry.state.names import GLOBAL_CONTEXT, context_of, is_valid_subject, normalize_context
from tailrace.apps.registry.web import http
from tailrace.apps.registry.web.api import Api, Call
from tailrace.model.acls import Operation


def setting_routes(api: Api) -> Sequence[Route]:
    both = ("", "/{subject}")
    return [
        *(api.route("GET", f"/config{path}", get_config) for path in both),
        *(api.route("PUT", f"/config{path}", put_config) for path in both),
        *(api.route("DELETE", f"/config{path}", delete_config) for path in both),
        *(api.route("GET", f"/mode{path}", get_mode) for path in both),
        *(api.route("PUT", f"/mode{path}", put_mode) for path in both),
        *(api.route("DELETE", f"/mode{path}", delete_mode) for path in both),
        api.route("GET", "/contexts", list_contexts),
        api.route("DELETE", "/contexts/{context}", delete_context),
        api.route("GET", "/v1/metadata/id", get_cluster_id),
        api.route("GET", "/v1/metadata/version", get_server_version),
        api.route("GET", "/v1/metadata/deployment", get_deployment),
        api.route("GET", "/", get_root),
        api.route("POST", "/", get_root),
    ]


# --- compatibility and its company


async def get_config(call: Call) -> Response:
    scope = call.scope(Operation.DESCRIBE_CONFIGS)
    if call.flag("defaultToGlobal"):
        return call.answer(call.state.config_in_scope(scope))
    own = call.state.configs.get(scope)
    if own is None and scope is not None and context_of(scope) != GLOBAL_CONTEXT:
        raise errors.no_subject_compatibility(scope)
    return call.answer(config_answer(call.state, own or {}))


async def put_config(call: Call) -> Response:
    document = await call.json()
    _check_name(call)
    scope = call.scope(Operation.ALTER_CONFIGS)
    return await call.write(lambda: decide_config(call.state, scope, document))


async def delete_config(call: Call) -> Response:
    scope = call.scope(Operation.ALTER_CONFIGS)
    return await call.write(lambda: decide_config_deletion(call.state, scope))


# --- modes


async def get_mode(call: Call) -> Response:
    scope = call.scope(Operation.DESCRIBE_CONFIGS)
    if call.flag("defaultToGlobal"):
        return call.answer({"mode": call.state.mode_in_scope(scope)})
    own = call.state.modes.get(scope)
    if own is None and scope is not None and context_of(scope) != GLOBAL_CONTEXT:
        raise errors.no_subject_mode(scope)
    return call.answer({"mode": own or call.state.default_mode})


async def put_mode(call: Call) -> Response:
    document = await call.json()
    _check_name(call)
    scope = call.scope(Operation.ALTER_CONFIGS)
    _check_modes_may_change(call)
    mode, force = document.get("mode"), call.flag("force")
    wanted = None if mode is None else str(mode).upper()
    return await call.write(lambda: decide_mode(call.state, scope, wanted, force=force))


async def delete_mode(call: Call) -> Response:
    scope = call.scope(Operation.ALTER_CONFIGS)
    _check_modes_may_change(call)
    recursive = call.flag("recursive")
    return await call.write(lambda: decide_mode_deletion(call.state, scope, recursive=recursive))


def _check_modes_may_change(call: Call) -> None:
    if not call.registry.settings.is_mode_mutable:
        raise errors.not_permitted("Mode changes are not allowed")


def _check_name(call: Call) -> None:
    if "subject" in call.request.path_params:
        name = http.path_text(call.request, "subject")
        if not is_valid_subject(name, for_settings=True):
            raise errors.invalid_subject(name)


# --- contexts


async def list_contexts(call: Call) -> Response:
    """Those in which the caller may see a subject, and the default one."""
    seen = {context_of(each) for each in call.state.subjects(deleted=True) if call.may(Operation.DESCRIBE, each)}
    may_see_all = call.may(Operation.DESCRIBE, None)
    prefix = http.query(call.request, "contextPrefix")
    default, *others = call.state.all_contexts()
    found = [default, *(each for each in others if may_see_all or each in seen)]
    return call.answer(http.page([each for each in found if each.startswith(prefix)], call.request))


async def delete_context(call: Call) -> Response:
    call.check(Operation.ALTER_CONFIGS, None)
    try:
        context = context_of(normalize_context(http.path_text(call.request, "context")))
    except ValueError as error:
        raise errors.RegistryError(400, 400, str(error)) from None
    await call.registry.write(lambda: decide_context_deletion(call.state, context))
    return Response(status_code=204)


# --- the registry itself


async def get_cluster_id(call: Call) -> Response:
    cluster_id = call.registry.cluster.cluster_id or ""
    group = call.registry.settings.group_id
    return call.answer(
        {"scope": {"path": [], "clusters": {"kafka-cluster": cluster_id, "schema-registry-cluster": group}}, "id": ""}
    )


async def get_server_version(call: Call) -> Response:
    return call.answer({"version": f"{__version__}-tailrace", "commitId": ""})


async def get_deployment(call: Call) -> Response:
    return call.answer({"attributes": []})


async def get_root(call: Call) -> Response:
    return call.answer({})
