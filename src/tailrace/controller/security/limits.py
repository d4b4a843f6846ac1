"""Which quota holds for whom, and quotas as records. Every node needs this from its start; requests about quotas are
apart, in `quotas`.

For a user and a client id the first of these holds that has the key; so two keys may come from two entities:

    user and client id, user and default client id, user,
    default user and client id, default user and default client id, default user,
    client id, default client id

What is counted together depends on where the quota was found: one of a user counts all connections of that user, one
of a user and a client id those of the pair. A default gives each its own count.
"""

from typing import NamedTuple

from tailrace.model.quotas import CLIENT_ID, CONNECTION_CREATION_RATE, IP, USER, QuotaEntity, Quotas, quota_entity
from tailrace.wire.apis.stored_records import ClientQuotaRecord


class Limit(NamedTuple):
    bound: float
    # Whose use is counted together: the user, the client id or both; None where they differ.
    user: str | None
    client_id: str | None


def find_limit(quotas: Quotas, key: str, user: str, client_id: str) -> Limit | None:
    """The quota that holds for a user with a client id, if there is one."""
    for names in (
        {USER: user, CLIENT_ID: client_id},
        {USER: user, CLIENT_ID: None},
        {USER: user},
        {USER: None, CLIENT_ID: client_id},
        {USER: None, CLIENT_ID: None},
        {USER: None},
        {CLIENT_ID: client_id},
        {CLIENT_ID: None},
    ):
        bound = quotas.get(quota_entity(names.items()), {}).get(key)
        if bound is not None:
            return Limit(bound, user if USER in names else None, client_id if CLIENT_ID in names else None)
    return None


class AddressLimits:
    """How fast connections may come from addresses, as `parse_address` writes them. False while there is no limit."""

    def __init__(self, quotas: Quotas) -> None:
        self._default: float | None = None
        self._own: dict[str, float] = {}
        for entity, values in quotas.items():
            bound = values.get(CONNECTION_CREATION_RATE)
            name = dict(entity).get(IP, "")
            if bound is None or name == "":
                continue
            if name is None:
                self._default = bound
            elif (address := parse_address(name)) is not None:
                self._own.setdefault(address, bound)  # The first that was set of several ways to write one.

    def __bool__(self) -> bool:
        return self._default is not None or bool(self._own)

    def find(self, address: str) -> float | None:
        return self._own.get(address, self._default)


def parse_address(text: str) -> str | None:
    """In the one form that an address has here; None if it is none. IPv4 in IPv6 is IPv4, as for Java."""
    from ipaddress import ip_address

    try:
        address = ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def quota_record(entity: QuotaEntity, key: str, value: float | None) -> ClientQuotaRecord:
    """Without a value it takes the quota away."""
    return ClientQuotaRecord(
        entity=[ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        key=key,
        value=value or 0.0,
        remove=value is None,
    )
