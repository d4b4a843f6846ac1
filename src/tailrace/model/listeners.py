"""Which protocol a listener has, and which security settings hold for it.

Pure. A setting is looked up under the listener's and the mechanism's name, then under the listener's, then without
either. Names of listeners are kept in capitals, and written in small letters in `listener.name.<name>.`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.model.errors import KafkaError
from tailrace.model.security import SecurityProtocol
from tailrace.model.security_settings import LISTENER_SETTINGS, MECHANISMS, STORE_SETTINGS, SecurityConfig
from tailrace.model.settings import Setting, format_value, invalid, parse_value

if TYPE_CHECKING:
    from tailrace.model.config import BrokerConfig

PREFIX = "listener.name."


def mapped_protocols(config: BrokerConfig) -> dict[str, str]:
    """As they are written, by the names of listeners, of which this node may have some."""
    parts = config.listener_security_protocol_map.split(",")
    pairs = [part.strip().upper().partition(":") for part in parts if part.strip()]
    return {name.strip(): protocol.strip() for name, _, protocol in pairs}


def protocol_of(config: BrokerConfig, listener_name: str) -> SecurityProtocol:
    """Raises KafkaError INVALID_CONFIG."""
    text = config.listener_security_protocol_map
    protocol = mapped_protocols(config).get(listener_name)
    if protocol is None and "listener_security_protocol_map" not in config.given:
        protocol = "PLAINTEXT"
    if protocol is None:
        reason = f"It does not name listener {listener_name}: add {listener_name}:PROTOCOL."
        raise invalid("listener.security.protocol.map", text, reason)
    try:
        return SecurityProtocol(protocol)
    except ValueError:
        reason = f"Listener {listener_name} cannot have {protocol}: there are {', '.join(SecurityProtocol)}."
        raise invalid("listener.security.protocol.map", text, reason) from None


def is_secured(config: BrokerConfig) -> bool:
    """Whether any listener, of this node or that it calls, is more than PLAINTEXT or HTTP."""
    names = (*(endpoint.listener_name for endpoint in config.listeners), *config.controller_listener_names)
    if any(endpoint.listener_name == "HTTPS" for endpoint in config.metrics_listeners):
        return True
    return any(protocol_of(config, name) is not SecurityProtocol.PLAINTEXT for name in names)


def settings_of(config: BrokerConfig, listener_name: str, mechanism: str = "") -> dict[str, str]:
    """The texts of all security settings that have a value there. sasl.jaas.config counts for a mechanism alone."""
    general = {
        row.name: text
        for row in SecurityConfig.SETTINGS.values()
        if row.name in LISTENER_SETTINGS and (text := format_value(row, config.value(row))) is not None
    }
    general.pop("sasl.jaas.config", None)
    given = dict(config.listener_settings)
    found = general | _below(given, prefix_of(listener_name))
    return found | _below(given, prefix_of(listener_name, mechanism)) if mechanism else found


def prefix_of(listener_name: str, mechanism: str = "") -> str:
    return f"{PREFIX}{listener_name.lower()}." + (f"{mechanism.lower()}." if mechanism else "")


def find_setting(name: str) -> tuple[str, Setting] | None:
    """The listener that a `listener.name.` setting is for, and the row of the table; None if there is none."""
    listener, dot, rest = name.removeprefix(PREFIX).partition(".")
    mechanism = next((each for each in MECHANISMS if rest.startswith(f"{each.lower()}.")), None)
    if mechanism is not None:
        rest = rest[len(mechanism) + 1 :]
    if not listener or not dot or rest not in LISTENER_SETTINGS:
        return None
    if mechanism is not None and rest.startswith("ssl."):
        return None
    return listener.upper(), SecurityConfig.SETTINGS[rest]


def is_store_setting(name: str) -> bool:
    """Whether it says, for one listener, where certificates come from: that may change while a broker runs."""
    found = find_setting(name) if name.startswith(PREFIX) else None
    return found is not None and found[1].name in STORE_SETTINGS


def check_setting(name: str, text: str) -> None:
    """Raises KafkaError INVALID_CONFIG, which never quotes a secret."""
    found = find_setting(name)
    if found is None:
        raise invalid(
            name, "(hidden)", "There is no such setting of a listener: see ssl.* and sasl.* for what there is"
        )
    try:
        parse_value(found[1], text)
    except KafkaError as error:
        raise KafkaError(error.code, error.message.replace(found[1].name, name, 1)) from None


def _below(given: dict[str, str], prefix: str) -> dict[str, str]:
    return {
        rest: text
        for name, text in given.items()
        if name.startswith(prefix) and (rest := name.removeprefix(prefix)) in LISTENER_SETTINGS
    }
