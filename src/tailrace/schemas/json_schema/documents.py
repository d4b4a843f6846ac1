"""Where a `$ref` leads: into the same document, into a reference by its name, or to a known meta-schema. Never to the
network.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from tailrace.schemas.parsed import InvalidSchema

_META = ("http://json-schema.org/", "https://json-schema.org/")


class Documents:
    """The JSON of a schema and of its references, by address."""

    def __init__(self, root: Any, references: Mapping[str, Any]) -> None:
        self.base = _id_of(root)
        self._by_address: dict[str, Any] = {}
        for name, document in references.items():
            for address in (name, urljoin(self.base, name), _id_of(document)):
                if address:
                    self._by_address.setdefault(_bare(address), document)
        self._by_address[_bare(self.base)] = root
        self._anchors: dict[str, Any] = {}
        for address, document in list(self._by_address.items()):
            self._index(document, address)

    def find(self, reference: str, base: str) -> tuple[Any, str]:
        """What it refers to, and the base of references in there; `true` for a meta-schema."""
        address, fragment = urldefrag(urljoin(base, reference))
        plain = urldefrag(reference)[0]
        for candidate in (address, plain, plain.removeprefix("./")):
            if candidate in self._by_address and (candidate or not plain):
                return self._within(self._by_address[candidate], unquote(fragment), reference, candidate), candidate
        if address.startswith(_META):
            return True, base
        known = ", ".join(sorted(each for each in self._by_address if each)) or "none"
        raise InvalidSchema(
            f"$ref {reference!r} leads nowhere: register what it names and list it in `references` (known: {known}); "
            "nothing is fetched from the network"
        )

    def _within(self, document: Any, fragment: str, reference: str, address: str) -> Any:
        if not fragment:
            return document
        if not fragment.startswith("/"):
            if (found := self._anchors.get(f"{address}#{fragment}")) is None:
                raise InvalidSchema(f"$ref {reference!r} names an anchor that is not there")
            return found
        found, parts = document, [part.replace("~1", "/").replace("~0", "~") for part in fragment[1:].split("/")]
        for index, part in enumerate(parts):
            step = _step(found, part)
            if step is None and index == 0 and part == "$defs":
                step = _step(found, "definitions")  # as Confluent does
            if step is None:
                raise InvalidSchema(f"$ref {reference!r} leads nowhere: there is no {part!r} on its way")
            found = step
        return found

    def _index(self, value: Any, base: str) -> None:
        """Schemas inside of a document that have an address or an anchor of their own."""
        waiting = [(value, base)]
        while waiting:
            value, base = waiting.pop()
            if isinstance(value, dict):
                if own := _id_of(value):
                    address, fragment = urldefrag(urljoin(base, own))
                    if fragment:
                        self._anchors.setdefault(f"{address}#{fragment}", value)
                    else:
                        base = address
                        self._by_address.setdefault(base, value)
                for key in ("$anchor", "$dynamicAnchor"):
                    if isinstance(anchor := value.get(key), str):
                        self._anchors.setdefault(f"{base}#{anchor}", value)
                waiting += [(each, base) for each in value.values()]
            elif isinstance(value, list):
                waiting += [(each, base) for each in value]


def _step(value: Any, part: str) -> Any:
    if isinstance(value, dict):
        return value.get(part)
    if isinstance(value, list) and part.isdigit() and int(part) < len(value):
        return value[int(part)]
    return None


def _id_of(value: Any) -> str:
    if not isinstance(value, dict):
        return ""
    found = value.get("$id", value.get("id"))
    return found if isinstance(found, str) else ""


def _bare(address: str) -> str:
    return urldefrag(address)[0]
