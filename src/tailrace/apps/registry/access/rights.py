"""What callers may do, by the ACLs of the cluster: read now and then with the registry's own login, and judged as
brokers judge them.

A subject is a TOPIC of that name, so that a prefixed ACL on `orders` covers `orders-value`; the registry as a whole is
the CLUSTER. Who logs in as the registry itself may do everything here: it can write the topic anyway. A cluster without
an authorizer has no ACLs, and lets whoever gets in do everything; so does this. While the brokers cannot be asked, the
last ACLs count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from starlette.requests import Request

from tailrace.apps.registry.access.callers import Caller
from tailrace.apps.registry.access.logins import Logins
from tailrace.apps.registry.settings import RegistrySettings
from tailrace.client.acls import AclAdmin, AclFilter
from tailrace.client.admin import Admin
from tailrace.client.metadata import Cluster
from tailrace.controller.security.authorizer import Authorizer, Resource
from tailrace.model import events
from tailrace.model.acls import CLUSTER_NAME, Acl, Kind, Operation
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import Uuid

_log = events.logger("registry")
_RESOURCE_BROKER = 4


class GuardedDoor:
    """`start` it, and `close` it at the end."""

    def __init__(self, cluster: Cluster, logins: Logins, settings: RegistrySettings, own: str | None) -> None:
        self._cluster = cluster
        self._logins = logins
        self._settings = settings
        # Who the registry itself is.
        self._own = own
        self._authorizer: Authorizer | None = None  # None: the cluster has none.
        self._acls: dict[Acl, Uuid] = {}
        self._is_refused = False
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Raises KafkaError if the ACLs cannot be read, for a registry that does not know them must not guess."""
        await self._cluster.with_retries(self._refresh, timeout_ms=self._settings.init_timeout_ms)
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def enter(self, request: Request) -> Caller:
        return await self._logins.enter(request)

    def may(self, caller: Caller, operation: Operation, subject: str | None) -> bool:
        if self._authorizer is None or caller.principal == self._own:
            return True
        resource = Resource(Kind.CLUSTER, CLUSTER_NAME) if subject is None else Resource(Kind.TOPIC, subject)
        return self._authorizer.decide(caller.principal, caller.host, operation, resource).is_allowed

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._settings.acl_refresh_ms / 1000)
            try:
                await self._refresh()
                self._is_refused = False
            except KafkaError as error:
                if not self._is_refused:
                    _log.warning("the ACLs cannot be read now: the last ones count", cause=error.message)
                self._is_refused = True

    async def _refresh(self) -> None:
        try:
            acls = await AclAdmin(self._cluster).find(AclFilter())
        except KafkaError as error:
            if error.code is not ErrorCode.SECURITY_DISABLED:
                raise
            self._authorizer = None
            return
        if self._authorizer is None:
            super_users, allows = await self._broker_settings()
            self._authorizer = Authorizer(super_users, allows_without_acl=allows)
        known = self._acls
        self._acls = {acl: known.get(acl) or Uuid(self._cluster.ports.random.uuid()) for acl in acls}
        self._authorizer.index.follow({acl_id: acl for acl, acl_id in self._acls.items()})

    async def _broker_settings(self) -> tuple[Collection[str], bool]:
        """What brokers tell of theirs: Apache Kafka hides super.users, and then the registry's own setting has them."""
        named = {name for each in self._settings.super_users.split(";") if (name := each.strip())}
        found: dict[str, str] = {}
        try:
            await self._cluster.refresh(None)
            node = str(next(iter(self._cluster.brokers)))
            entries = await Admin(self._cluster).configs_of(_RESOURCE_BROKER, node)
            found = {each.name: each.value for each in entries if each.value is not None}
        except (KafkaError, StopIteration) as error:
            _log.warning("brokers do not tell who their super users are: set super.users", cause=str(error))
        told = {name for each in found.get("super.users", "").split(";") if (name := each.strip())}
        return named | told, found.get("allow.everyone.if.no.acl.found", "").lower() == "true"
