"""Every API that is declared, by key. Nothing is imported before it is asked for.

Declared is not served: what a node serves, in which versions and where, stands in `tailrace.catalogue`.
"""

from __future__ import annotations

from importlib import import_module
from typing import cast

from tailrace.wire.apis.keys import ApiKey
from tailrace.wire.schema import Message

_KEYS = frozenset(ApiKey)
_requests: dict[int, type[Message]] = {}
_responses: dict[int, type[Message]] = {}


def is_declared(api_key: int) -> bool:
    return api_key in _KEYS


def api_name(api_key: int) -> str:
    """Kafka's name, such as `Produce`; for log lines also of keys that are not declared."""
    if not is_declared(api_key):
        return f"api{api_key}"
    return "".join(word.capitalize() for word in ApiKey(api_key).name.split("_"))


def request_type(api_key: int) -> type[Message]:
    """Raises KeyError for a key that is not declared."""
    found = _requests.get(api_key)
    if found is None:
        found = _requests[api_key] = _load(api_key, "Request")
    return found


def response_type(api_key: int) -> type[Message]:
    """Raises KeyError for a key that is not declared."""
    found = _responses.get(api_key)
    if found is None:
        found = _responses[api_key] = _load(api_key, "Response")
    return found


def _load(api_key: int, suffix: str) -> type[Message]:
    if not is_declared(api_key):
        raise KeyError(f"API key {api_key} is not declared")
    module = import_module(f"{__name__}.{ApiKey(api_key).module}")
    return cast("type[Message]", getattr(module, api_name(api_key) + suffix))
