"""The security of a node, as its settings say: a door for each of its listeners that is more than PLAINTEXT, and the
ways by which it logs in to other nodes. Made once, at the start; whatever is missing or does not fit keeps the node
from starting, with the setting that would help.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tailrace.broker.auth.conversations import Conversation, hear_plain, hear_scram
from tailrace.broker.auth.doors import Door, Handshakes, Limits
from tailrace.broker.auth.identities import Identity, SecuredNetwork, Watch
from tailrace.broker.auth.login import Mechanism, Mechanisms
from tailrace.broker.auth.principals import parse_rules
from tailrace.broker.auth.sessions import SessionConnection
from tailrace.broker.cluster.peers import Way, Ways
from tailrace.broker.cluster.roles import Roles
from tailrace.client.security.jaas import parse_jaas
from tailrace.client.security.login import SaslLogin, Token
from tailrace.client.security.settings import TokenSettings, parse_security, parse_tls
from tailrace.controller.image import MetadataImage, ScramCredential
from tailrace.controller.security.credentials import Pretence, decide_pretence
from tailrace.model.errors import KafkaError
from tailrace.model.listeners import prefix_of, protocol_of, settings_of
from tailrace.model.ports import Network, Ports
from tailrace.model.security import ClientAuth, ScramMechanism, SecurityProtocol, TlsSettings
from tailrace.model.settings import invalid

if TYPE_CHECKING:
    from tailrace.model.config import BrokerConfig

_USER_PREFIX = "user_"


class Security:
    """`open` first: it reads the certificates."""

    def __init__(self, config: BrokerConfig, ports: Ports, roles: Roles, *, image: Callable[[], MetadataImage]) -> None:
        self.doors: dict[str, Door] = {}  # By the names of listeners. Those that are PLAINTEXT have none.
        plain: Way = ports.network, None
        self.ways = Ways(plain, plain)
        self._config = config
        self._ports = ports
        self._roles = roles
        self._image = image
        self._identities: list[Identity] = []
        self._watch: Watch | None = None
        # What those who do not exist are asked with, and the credentials that it was made from.
        self._pretended_from: object = None
        self._pretence: Pretence

    async def open(self) -> None:
        """Raises KafkaError INVALID_CONFIG with cause and remedy."""
        config, roles = self._config, self._roles
        handshakes = Handshakes(self._ports.background, config.ssl_handshakes_max)
        for endpoint in (*roles.client_listeners, *roles.controller_listeners):
            name = endpoint.listener_name
            if protocol_of(config, name) is not SecurityProtocol.PLAINTEXT:
                self.doors[name] = await self._make_door(name, handshakes)
        if not roles.is_alone:
            await self._find_ways()
        interval_ms = config.ssl_files_check_interval_ms
        self._watch = Watch(self._identities, self._ports, interval_ms=interval_ms)

    async def _find_ways(self) -> None:
        config, roles = self._config, self._roles
        if roles.is_broker:
            mechanism = config.sasl_mechanism_inter_broker_protocol
            setting = "sasl.mechanism.inter.broker.protocol"
            way = await self._find_way(roles.inter_broker_listener_name, mechanism, setting)
            self.ways = self.ways._replace(to_brokers=way)
        mechanism, setting = config.sasl_mechanism_controller_protocol, "sasl.mechanism.controller.protocol"
        if config.controller_listener_names:
            way = await self._find_way(config.controller_listener_names[0], mechanism, setting)
            self.ways = self.ways._replace(to_controllers=way)

    async def _make_door(self, listener_name: str, handshakes: Handshakes) -> Door:
        config = self._config
        protocol, texts = protocol_of(config, listener_name), settings_of(config, listener_name)
        door = Door(
            listener_name,
            Limits(
                config.connection_login_max_ms,
                config.connection_failed_authentication_delay_ms,
                int(texts["sasl.server.max.receive.size"]),
            ),
            handshakes,
            rules=parse_rules(texts["ssl.principal.mapping.rules"]),
            mechanisms=self._make_mechanisms(listener_name, texts["sasl.enabled.mechanisms"])
            if protocol.has_sasl
            else None,
        )
        if protocol.has_tls:
            settings = parse_tls(texts)
            suites = tuple(filter(None, texts["ssl.cipher.suites"].split(",")))
            settings = replace(settings, client_auth=self._client_auth(listener_name), cipher_suites=suites)
            door.identity = await self._read(settings, listener_name, listens=True)
        return door

    def _client_auth(self, listener_name: str) -> ClientAuth:
        """Who logs in by SASL is asked for a certificate only if the listener's own setting says so (KIP-684)."""
        if not protocol_of(self._config, listener_name).has_sasl:
            return ClientAuth(settings_of(self._config, listener_name)["ssl.client.auth"])
        own = dict(self._config.listener_settings).get(prefix_of(listener_name) + "ssl.client.auth")
        return ClientAuth.NONE if own is None else ClientAuth(own.strip())

    async def _read(self, settings: TlsSettings, listener_name: str, *, listens: bool) -> Identity:
        assert self._ports.tls is not None, "these ports have no TLS"
        identity = Identity(self._ports.tls, settings, listener_name, listens=listens)
        await self._ports.background.run(identity.read)
        self._identities.append(identity)
        return identity

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()

    def _make_mechanisms(self, listener_name: str, enabled: str) -> Mechanisms:
        names = [name for name in enabled.split(",") if name]
        if not names:
            reason = f"Listener {listener_name} has SASL: name the mechanisms that it takes"
            raise invalid("sasl.enabled.mechanisms", "(nothing)", reason)
        return {name: self._make_mechanism(listener_name, name) for name in names}

    def _make_mechanism(self, listener_name: str, mechanism: str) -> Mechanism:
        session_ms = int(settings_of(self._config, listener_name, mechanism)["connections.max.reauth.ms"])
        conversation = self._find_conversation(listener_name, mechanism)
        return Mechanism(conversation, session_ms, SessionConnection if session_ms else None)

    def _find_conversation(self, listener_name: str, mechanism: str) -> Callable[[], Conversation]:
        if mechanism == "PLAIN":
            return partial(hear_plain, self._passwords(listener_name))
        scram = next(each for each in ScramMechanism if each.mechanism_name == mechanism)
        random = self._ports.random
        find = partial(self._find_credential, scram)
        return lambda: hear_scram(scram, find, b64encode(random.uuid() + random.uuid()).decode())

    def _find_credential(self, mechanism: ScramMechanism, user: str) -> tuple[ScramCredential, bool]:
        image = self._image()
        real = image.scram_credentials.get((user, mechanism))
        if self._pretended_from is not image.scram_credentials:
            self._pretended_from, self._pretence = image.scram_credentials, decide_pretence(image)
        # Made for everybody, so that it takes as long.
        pretended = self._pretence.credential(user, mechanism)
        return (pretended, False) if real is None else (real, True)

    def _passwords(self, listener_name: str) -> dict[str, str]:
        setting = prefix_of(listener_name, "PLAIN") + "sasl.jaas.config"
        jaas = settings_of(self._config, listener_name, "PLAIN").get("sasl.jaas.config")
        try:
            users = parse_jaas(jaas).options if jaas else {}
        except KafkaError as error:
            raise KafkaError(error.code, error.message.replace("sasl.jaas.config", setting, 1)) from None
        passwords = {
            name.removeprefix(_USER_PREFIX): text for name, text in users.items() if name.startswith(_USER_PREFIX)
        }
        if not passwords or not all(passwords.values()):
            raise invalid(
                setting,
                "(hidden)",
                f"Listener {listener_name} takes PLAIN, and there are no users, or one without a password: write "
                'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="her password"; there',
            )
        return passwords

    async def _find_way(self, listener_name: str, mechanism: str | None, mechanism_setting: str) -> Way:
        """How this node calls that listener of others."""
        network: Network = self._ports.network
        login = None
        protocol = protocol_of(self._config, listener_name)
        if protocol is SecurityProtocol.PLAINTEXT:
            return network, None
        if protocol.has_sasl and mechanism is None:
            reason = f"Listener {listener_name} has SASL: say by which mechanism nodes log in to each other there"
            raise invalid(mechanism_setting, "(nothing)", reason)
        texts = settings_of(self._config, listener_name, mechanism or "")
        texts |= {"security.protocol": protocol.value} | ({"sasl.mechanism": mechanism} if mechanism else {})
        try:
            security = parse_security(texts)
        except KafkaError as error:
            reason = f"{error.message} (for calls of listener {listener_name}: {prefix_of(listener_name)}...)"
            raise KafkaError(error.code, reason) from None
        if security.tls is not None:
            network = SecuredNetwork(network, await self._read(security.tls, listener_name, listens=False))
        if security.sasl is not None:
            login = SaslLogin(security.sasl, self._ports, _no_token)
        return network, login


async def _no_token(_settings: TokenSettings) -> Token:
    raise AssertionError("nodes do not log in to each other by tokens")
