"""The security of a node, as its settings say: a door for each of its listeners that is more than PLAINTEXT, and the
ways by which it logs in to other nodes. Made once, at the start; whatever is missing or does not fit keeps the node
from starting, with the setting that would help. Certificates alone may change later (`renewal`).
"""

from __future__ import annotations

import asyncio
from asyncio import Semaphore
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tailrace.broker.auth.conversations import Conversation, TokenLogin, hear_oauthbearer, hear_plain, hear_scram
from tailrace.broker.auth.doors import Door, Handshakes, Limits
from tailrace.broker.auth.identities import Identity, SecuredDialer
from tailrace.broker.auth.login import Mechanism, Mechanisms
from tailrace.broker.auth.principals import parse_rules
from tailrace.broker.auth.renewal import Renewal
from tailrace.broker.auth.sessions import SessionConnection
from tailrace.broker.cluster.peers import Way, Ways
from tailrace.broker.cluster.roles import Roles
from tailrace.client.security.jaas import parse_jaas
from tailrace.client.security.settings import Security as ClientSecurity
from tailrace.client.security.settings import parse_security, parse_tls
from tailrace.controller.effective import broker_config
from tailrace.controller.image import MetadataImage, ScramCredential
from tailrace.controller.security.pretence import STEP_USERS, Pretence, count_kinds, decide_pretence
from tailrace.controller.security.token_keys import TokenKeys
from tailrace.model.config import apply_dynamic, decide_advertised
from tailrace.model.errors import KafkaError
from tailrace.model.listeners import is_store_setting, prefix_of, protocol_of, settings_of
from tailrace.model.ports import Dialer, Ports
from tailrace.model.security import ClientAuth, ScramMechanism, SecurityProtocol, TlsSettings
from tailrace.model.settings import invalid

if TYPE_CHECKING:
    from tailrace.broker.auth.bearer.judge import Judge
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
        self._judges: list[Judge] = []  # Of tokens.
        self._renewal: Renewal | None = None
        self._following: asyncio.Task[None] | None = None
        # Credentials of tokens are made in helper threads, as many at a time as steps of handshakes.
        self._token_turns = Semaphore(config.ssl_handshakes_max)
        # What those who do not exist are asked with, and the credentials that it was made from.
        self._pretended_from: object = None
        self._pretence: Pretence
        self._counting: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Raises KafkaError INVALID_CONFIG with cause and remedy."""
        config, roles = self._config, self._roles
        handshakes = Handshakes(self._ports.background, config.ssl_handshakes_max)
        for endpoint in (*roles.client_listeners, *roles.controller_listeners):
            name = endpoint.listener_name
            if protocol_of(config, name) is not SecurityProtocol.PLAINTEXT:
                self.doors[name] = await self._make_door(name, handshakes)
        for endpoint in config.metrics_listeners:
            if endpoint.listener_name == "HTTPS":
                self.doors["HTTPS"] = await self._make_web_door("HTTPS", handshakes)
        await self._find_ways()
        hosts = {each.listener_name: each.host for each in decide_advertised(config, {})}
        self._renewal = Renewal(config, self._ports, self._identities, hosts)

    async def _find_ways(self) -> None:
        to_brokers, to_controllers = self.ways
        for target in _targets(self._config, self._roles):
            way = await self._find_way(target.listener_name, target.mechanism, target.mechanism_setting)
            if target.are_brokers:
                to_brokers = way
            else:
                to_controllers = way
        self.ways = Ways(to_brokers, to_controllers)

    async def _make_web_door(self, listener_name: str, handshakes: Handshakes) -> Door:
        """TLS alone: who it is, is asked of each request (`broker.metrics.logins`)."""
        limits = Limits(self._config.connection_login_max_ms, 0, 0)
        door = Door(listener_name, limits, handshakes)
        find_settings = partial(_web_settings, listener_name=listener_name)
        door.identity = await self._read(find_settings, listener_name, listens=True)
        return door

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
            mechanisms=await self._make_mechanisms(listener_name, texts["sasl.enabled.mechanisms"])
            if protocol.has_sasl
            else None,
        )
        if protocol.has_tls:
            find_settings = partial(_door_settings, listener_name=listener_name)
            door.identity = await self._read(find_settings, listener_name, listens=True)
        return door

    async def _read(
        self, find_settings: Callable[[BrokerConfig], TlsSettings], listener_name: str, *, listens: bool
    ) -> Identity:
        assert self._ports.tls is not None, "these ports have no TLS"
        identity = Identity(self._ports.tls, find_settings, listener_name, listens=listens)
        settings = find_settings(self._config)
        identity.version = await self._ports.background.run(lambda: identity.read(settings))
        self._identities.append(identity)
        return identity

    def close(self) -> None:
        if self._renewal is not None:
            self._renewal.close()
        for task in (self._following, self._counting):
            if task is not None:
                task.cancel()
        for judge in self._judges:
            judge.source.close()

    # ---- certificates that change

    async def check_stores(self, texts: Mapping[str, str]) -> None:
        """Whether this node could go on with these dynamic settings of its own. Raises KafkaError INVALID_CONFIG."""
        unknown = [name for name in texts if is_store_setting(name) and not self._has_listener(name)]
        if unknown:
            raise invalid(unknown[0], "(hidden)", f"This broker has no such listener with TLS: {', '.join(self.doors)}")
        assert self._renewal is not None, "it was opened"
        await self._renewal.check(apply_dynamic(self._config, texts))

    def endings(self) -> Iterator[tuple[str, str, int]]:
        """Of each listener: what ends, and when."""
        assert self._renewal is not None, "it was opened"
        return self._renewal.endings()

    def _has_listener(self, setting: str) -> bool:
        return any(setting.startswith(prefix_of(each.listener_name)) for each in self._identities)

    async def take_up(self) -> None:
        """The stores that the metadata names by now."""
        assert self._renewal is not None, "it was opened"
        await self._renewal.renew(broker_config(self._config, self._image()))

    def follow_image(self, old: MetadataImage, new: MetadataImage) -> None:
        if old.configs is not new.configs and (self._following is None or self._following.done()):
            self._following = asyncio.ensure_future(self._follow())

    async def _follow(self) -> None:
        """Until nothing has changed meanwhile."""
        configs = None
        while configs is not self._image().configs:
            configs = self._image().configs
            await self.take_up()

    async def _make_mechanisms(self, listener_name: str, enabled: str) -> Mechanisms:
        names = [name for name in enabled.split(",") if name]
        if not names:
            reason = f"Listener {listener_name} has SASL: name the mechanisms that it takes"
            raise invalid("sasl.enabled.mechanisms", "(nothing)", reason)
        return {name: await self._make_mechanism(listener_name, name) for name in names}

    async def _make_mechanism(self, listener_name: str, mechanism: str) -> Mechanism:
        texts = settings_of(self._config, listener_name, mechanism)
        session_ms = int(texts["connections.max.reauth.ms"])
        receive_max_bytes = int(texts["sasl.server.max.receive.size"])
        conversation = await self._find_conversation(listener_name, mechanism)
        # A token has an end of its own, of either kind.
        ends = session_ms or mechanism == "OAUTHBEARER" or self._config.delegation_token_secret_key
        return Mechanism(conversation, session_ms, SessionConnection if ends else None, receive_max_bytes)

    async def _find_conversation(self, listener_name: str, mechanism: str) -> Callable[[], Conversation]:
        if mechanism == "OAUTHBEARER":
            return partial(hear_oauthbearer, (await self._make_judge(listener_name)).judge)
        if mechanism == "PLAIN":
            return partial(hear_plain, self._passwords(listener_name))
        scram = next(each for each in ScramMechanism if each.mechanism_name == mechanism)
        random = self._ports.random
        find = partial(self._find_credential, scram)
        secret_key = self._config.delegation_token_secret_key
        find_token = partial(self._find_token, TokenKeys(secret_key), scram) if secret_key else None
        return lambda: hear_scram(scram, find, b64encode(random.uuid() + random.uuid()).decode(), find_token)

    async def _make_judge(self, listener_name: str) -> Judge:
        from tailrace.broker.auth.bearer.settings import make_judge

        texts = settings_of(self._config, listener_name, "OAUTHBEARER")
        jaas = texts.get("sasl.jaas.config")
        judge = await make_judge(
            texts,
            self._read_jaas(listener_name, "OAUTHBEARER", jaas) if jaas else {},
            self._ports,
            prefix=prefix_of(listener_name, "OAUTHBEARER"),
            under_way_max=self._config.ssl_handshakes_max,
        )
        self._judges.append(judge)
        return judge

    def _read_jaas(self, listener_name: str, mechanism: str, text: str) -> Mapping[str, str]:
        try:
            return parse_jaas(text).options
        except KafkaError as error:
            setting = prefix_of(listener_name, mechanism) + "sasl.jaas.config"
            raise KafkaError(error.code, error.message.replace("sasl.jaas.config", setting, 1)) from None

    def _find_credential(self, mechanism: ScramMechanism, user: str) -> tuple[ScramCredential, bool]:
        image = self._image()
        real = image.scram_credentials.get((user, mechanism))
        if self._pretended_from is not image.scram_credentials:
            self._pretend_anew(image)
        # Made for everybody, so that it takes as long.
        pretended = self._pretence.credential(user, mechanism)
        return (pretended, False) if real is None else (real, True)

    def _pretend_anew(self, image: MetadataImage) -> None:
        if self._pretended_from is None or len(image.scram_credentials) <= STEP_USERS:
            self._pretended_from, self._pretence = image.scram_credentials, decide_pretence(image)
        elif self._counting is None or self._counting.done():
            self._counting = asyncio.ensure_future(self._count(image))

    async def _count(self, image: MetadataImage) -> None:
        """Among many users, while the loop does other things; who logs in meanwhile is asked as before."""
        steps = count_kinds(image)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                self._pretended_from, self._pretence = image.scram_credentials, end.value
                return
            await asyncio.sleep(0)

    def _find_token(self, keys: TokenKeys, mechanism: ScramMechanism, token_id: str) -> TokenLogin:
        async def make_credential() -> ScramCredential:
            async with self._token_turns:
                return await self._ports.background.run(lambda: keys.credential(token_id, mechanism))

        now_ms = self._ports.clock.wall_ms()
        token = self._image().delegation_tokens.get(token_id)
        if token is None or token.is_over(now_ms):
            return TokenLogin(make_credential, None, 0)
        return TokenLogin(make_credential, token.owner.name, max(1, min(token.expiry_ms, token.max_ms) - now_ms))

    def _passwords(self, listener_name: str) -> dict[str, str]:
        setting = prefix_of(listener_name, "PLAIN") + "sasl.jaas.config"
        jaas = settings_of(self._config, listener_name, "PLAIN").get("sasl.jaas.config")
        users = self._read_jaas(listener_name, "PLAIN", jaas) if jaas else {}
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
        dialer: Dialer = self._ports.network
        login = None
        protocol = protocol_of(self._config, listener_name)
        if protocol is SecurityProtocol.PLAINTEXT:
            return dialer, None
        if protocol.has_sasl and mechanism is None:
            reason = f"Listener {listener_name} has SASL: say by which mechanism nodes log in to each other there"
            raise invalid(mechanism_setting, "(nothing)", reason)
        find_security = partial(_way_security, listener_name=listener_name, mechanism=mechanism)
        security = find_security(self._config)
        if security.tls is not None:
            identity = await self._read(lambda config: _tls_of(find_security(config)), listener_name, listens=False)
            dialer = SecuredDialer(dialer, identity)
        if security.sasl is not None:
            if mechanism == "OAUTHBEARER":
                from tailrace.broker.auth.bearer.settings import check_address

                setting = "sasl.oauthbearer.token.endpoint.url"
                texts = settings_of(self._config, listener_name, mechanism)
                check_address(prefix_of(listener_name, mechanism) + setting, texts[setting], texts)
            from tailrace.client.security.login import SaslLogin  # Nodes with certificates have no need of it.

            login = SaslLogin(security.sasl, self._ports)
        return dialer, login


def tls_settings(config: BrokerConfig, roles: Roles) -> Iterator[tuple[str, bool, TlsSettings]]:
    """All that a node will read at its start, by its listeners (True) and those of others that it calls (False). Raises
    KafkaError INVALID_CONFIG."""
    for endpoint in (*roles.client_listeners, *roles.controller_listeners):
        if protocol_of(config, endpoint.listener_name).has_tls:
            yield endpoint.listener_name, True, _door_settings(config, endpoint.listener_name)
    if any(endpoint.listener_name == "HTTPS" for endpoint in config.metrics_listeners):
        yield "HTTPS", True, _web_settings(config, "HTTPS")
    for target in _targets(config, roles):
        if protocol_of(config, target.listener_name).has_tls:
            security = _way_security(config, target.listener_name, target.mechanism)
            yield target.listener_name, False, _tls_of(security)


class _Target(NamedTuple):
    """Other nodes, by the listener of theirs that is called."""

    are_brokers: bool
    listener_name: str
    mechanism: str | None
    mechanism_setting: str


def _targets(config: BrokerConfig, roles: Roles) -> Iterator[_Target]:
    if roles.is_alone:
        return
    if roles.is_broker:
        mechanism, setting = config.sasl_mechanism_inter_broker_protocol, "sasl.mechanism.inter.broker.protocol"
        yield _Target(True, roles.inter_broker_listener_name, mechanism, setting)
    if config.controller_listener_names:
        mechanism, setting = config.sasl_mechanism_controller_protocol, "sasl.mechanism.controller.protocol"
        yield _Target(False, config.controller_listener_names[0], mechanism, setting)


def _door_settings(config: BrokerConfig, listener_name: str) -> TlsSettings:
    texts = settings_of(config, listener_name)
    suites = tuple(filter(None, texts["ssl.cipher.suites"].split(",")))
    return replace(parse_tls(texts), client_auth=_client_auth(config, listener_name), cipher_suites=suites)


def _web_settings(config: BrokerConfig, listener_name: str) -> TlsSettings:
    texts = settings_of(config, listener_name)
    suites = tuple(filter(None, texts["ssl.cipher.suites"].split(",")))
    return replace(parse_tls(texts), client_auth=ClientAuth.NONE, cipher_suites=suites)


def _client_auth(config: BrokerConfig, listener_name: str) -> ClientAuth:
    """Who logs in by SASL is asked for a certificate only if the listener's own setting says so (KIP-684)."""
    if not protocol_of(config, listener_name).has_sasl:
        return ClientAuth(settings_of(config, listener_name)["ssl.client.auth"])
    own = dict(config.listener_settings).get(prefix_of(listener_name) + "ssl.client.auth")
    return ClientAuth.NONE if own is None else ClientAuth(own.strip())


def _way_security(config: BrokerConfig, listener_name: str, mechanism: str | None) -> ClientSecurity:
    texts = settings_of(config, listener_name, mechanism or "")
    texts |= {"security.protocol": protocol_of(config, listener_name).value}
    texts |= {"sasl.mechanism": mechanism} if mechanism else {}
    try:
        return parse_security(texts)
    except KafkaError as error:
        reason = f"{error.message} (for calls of listener {listener_name}: {prefix_of(listener_name)}...)"
        raise KafkaError(error.code, reason) from None


def _tls_of(security: ClientSecurity) -> TlsSettings:
    assert security.tls is not None, "protocols do not change"
    return security.tls
