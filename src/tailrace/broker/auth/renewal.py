"""New certificates in the place of old ones, while a node runs: because their settings were changed, or their files.

Before one is used it is tried: it can be read and its key fits, it is valid today, its subject is that of the old one
and it has the names that the old one has (unless ssl.allow.dn.changes and ssl.allow.san.changes say otherwise), and
nodes with the old and with the new one still trust each other. All certificates of a listener change together. What is
refused is told in the log, once, and the old ones go on; whoever asks by `check` is told by a KafkaError.

Once a day the log tells what is about to end.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tailrace.broker.auth.identities import Identity, Version
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ports import Ports
from tailrace.model.security import CertificateFacts

if TYPE_CHECKING:
    from tailrace.model.config import BrokerConfig

_log = events.logger("certificates")

_DAY_MS = 86_400_000
# Between looks at what ends, where nobody looks at files.
_LOOK_MS = 3_600_000
_Versions = dict[Identity, Version]


class Renewal:
    """`hosts` are the names by which others call this node, for each listener."""

    def __init__(
        self, config: BrokerConfig, ports: Ports, identities: Sequence[Identity], hosts: Mapping[str, str]
    ) -> None:
        self._config = config
        self._ports = ports
        self._hosts = hosts
        self._by_listener: dict[str, list[Identity]] = defaultdict(list)
        for identity in identities:
            self._by_listener[identity.listener_name].append(identity)
        self._lock = asyncio.Lock()
        self._task = asyncio.ensure_future(self._look()) if identities else None

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def check(self, config: BrokerConfig) -> None:
        """Whether the settings could be taken up. Raises KafkaError INVALID_CONFIG with cause and remedy."""
        async with self._lock:
            for identities in self._by_listener.values():
                await self._prepare(config, identities, again=True)

    async def renew(self, config: BrokerConfig, *, again: bool = True) -> None:
        """Takes up what has changed. Unless it is tried `again`, what was refused is not looked at until it changes."""
        async with self._lock:
            self._config = config
            for listener_name, identities in self._by_listener.items():
                try:
                    prepared = await self._prepare(config, identities, again=again)
                except KafkaError as error:
                    _log.warning(
                        "new certificates cannot be used, the old ones go on",
                        listener=listener_name,
                        cause=error.message,
                    )
                    continue
                for identity, version in prepared.items():
                    identity.version = version
                if prepared:
                    _log.info("certificates were read again", listener=listener_name)

    async def _prepare(self, config: BrokerConfig, identities: Sequence[Identity], *, again: bool) -> _Versions:
        return await self._ports.background.run(lambda: self._prepare_now(config, identities, again=again))

    def _prepare_now(self, config: BrokerConfig, identities: Sequence[Identity], *, again: bool) -> _Versions:
        """Blocks."""
        prepared: _Versions = {}
        for identity in identities:
            version = identity.read_if_changed(identity.find_settings(config), again=again)
            if version is not None:
                prepared[identity] = version
        now_ms = self._ports.clock.wall_ms()
        for identity, version in prepared.items():
            old, new = identity.current.own, version.identity.own
            if old is not None and new is not None and old != new:
                _check_own(config, old, new, now_ms)
        self._check_terms(identities, prepared)
        return prepared

    def _check_terms(self, identities: Sequence[Identity], prepared: _Versions) -> None:
        """Of nodes that call each other by this listener some have the old version, and some the new one."""
        for server in (each for each in identities if each.listens):
            for client in (each for each in identities if not each.listens):
                if server in prepared:
                    self._check_pair(server, prepared[server], client.version)
                if client in prepared:
                    self._check_pair(server, server.version, prepared[client])

    def _check_pair(self, server: Identity, listening: Version, calling: Version) -> None:
        name = server.listener_name
        try:
            server.tls.check_terms(listening.identity, calling.identity, self._hosts[name])
        except KafkaError as error:
            raise _refusal(
                f"nodes that have the new certificates of listener {name} and those that still have the old ones could "
                f"not call each other: {error.message}. Let all of them trust both authorities first"
            ) from None

    # ---- as time goes by

    async def _look(self) -> None:
        interval_ms = self._config.ssl_files_check_interval_ms
        warned_ms = -_DAY_MS
        while True:
            now_ms = self._ports.clock.wall_ms()
            if abs(now_ms - warned_ms) >= _DAY_MS:
                warned_ms = now_ms
                self._warn(now_ms)
            await asyncio.sleep((interval_ms or _LOOK_MS) / 1000)
            if interval_ms:
                await self.renew(self._config, again=False)

    def endings(self) -> Iterator[tuple[str, str, int]]:
        """Of each listener: what ends, and when."""
        for name, identities in self._by_listener.items():
            for ending in dict.fromkeys(each for identity in identities for each in identity.current.endings):
                yield name, ending.what, ending.ends_ms

    def _warn(self, now_ms: int) -> None:
        listeners: dict[tuple[str, int], list[str]] = defaultdict(list)
        for name, identities in self._by_listener.items():
            for ending in dict.fromkeys(each for identity in identities for each in identity.current.endings):
                if ending.ends_ms - now_ms < self._config.ssl_expiry_warning_days * _DAY_MS:
                    listeners[ending].append(name)
        for (what, ends_ms), names in listeners.items():
            days = (ends_ms - now_ms) // _DAY_MS
            message = "soon it is not valid any more" if ends_ms > now_ms else "it is not valid any more"
            _log.warning(message, what=what, days_left=days, listeners=",".join(names))
        early = {own: name for name, own in self._owned() if own.begins_ms > now_ms}
        for own, name in early.items():
            _log.warning("a certificate is not valid yet: compare the clocks", subject=own.subject, listener=name)

    def _owned(self) -> Iterator[tuple[str, CertificateFacts]]:
        for name, identities in self._by_listener.items():
            for identity in identities:
                if identity.current.own is not None:
                    yield name, identity.current.own


def _check_own(config: BrokerConfig, old: CertificateFacts, new: CertificateFacts, now_ms: int) -> None:
    if now_ms < new.begins_ms:
        raise _refusal("the new certificate is not valid yet: compare the clocks, or come back when it is")
    if now_ms >= new.ends_ms:
        raise _refusal("the new certificate has expired: take one that is valid")
    if old.subject != new.subject and not config.ssl_allow_dn_changes:
        raise _refusal(
            f"the subject of the new certificate is {new.subject}, that of the old one {old.subject}: keep it, for "
            "others may know this node by it, or set ssl.allow.dn.changes=true"
        )
    missing = old.names - new.names
    if missing and not config.ssl_allow_san_changes:
        raise _refusal(
            f"the new certificate lacks names (SAN) that the old one has, {', '.join(sorted(missing))}: add them, for "
            "clients may call this node by them, or set ssl.allow.san.changes=true"
        )


def _refusal(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, reason[0].upper() + reason[1:])
