"""Data with a schema of a registry, as bytes in Confluent's framing: the registry is asked as the caller.

The schema is named by its id, by a version of its subject, by its own text (which is registered), or not at all: then
the latest of the subject counts. Subjects are `TOPIC-key` and `TOPIC-value` unless a record names another. Everything
here blocks, and runs in threads.
"""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from tailrace.apps.gateway.errors import GatewayError, bad_request
from tailrace.apps.gateway.produce.records import Part, WithSchema
from tailrace.client.security.settings import SaslSettings
from tailrace.real.registry.client import RegistryAddress, RegistryClient, RegistryError
from tailrace.schemas.codecs import CodecError, Encode, encoder
from tailrace.schemas.framing import write_prefix

_KINDS = {"AVRO": "AVRO", "JSONSCHEMA": "JSON", "PROTOBUF": "PROTOBUF"}
_TOPIC_NAME = "TOPIC_NAME"
_ENCODERS_MAX = 1000
# How long the latest version of a subject counts as such.
_LATEST_S = 30.0


class Schemas:
    """Of one caller."""

    def __init__(self, url: str, ca_file: str | None, sasl: SaslSettings | None) -> None:
        """Raises ValueError if that is no address of a registry."""
        user_info = f"{sasl.username}:{sasl.password}" if sasl is not None and sasl.username else None
        token = sasl.token.given if sasl is not None and sasl.token.given else None
        self._client = RegistryClient(RegistryAddress(url, user_info, token, ca_file))
        self._lock = threading.Lock()
        # By what names a schema: its id, its version, the encoder, and until when that counts.
        self._known: OrderedDict[tuple[Any, ...], tuple[int, int | None, Encode, float]] = OrderedDict()

    def of_topic(self, topic: str) -> WithSchema:
        return lambda raw, part: self._encode(raw, f"{topic}-{part}")

    def _encode(self, raw: Mapping[str, Any], usual_subject: str) -> tuple[bytes, Part]:
        kind = raw.get("type")
        if raw.get("subject_name_strategy", _TOPIC_NAME) != _TOPIC_NAME:
            raise bad_request(f"subject_name_strategy: {_TOPIC_NAME} is the only one here; name the subject")
        subject = raw.get("subject", usual_subject)
        try:
            schema_id, version, encode = self._find(raw, subject, kind)
            data = write_prefix(schema_id) + encode(json.dumps(raw.get("data")))
        except (RegistryError, CodecError) as error:
            raise GatewayError(422, 42207, f"Error serializing message. {error}") from None
        return data, Part(kind or "AVRO", len(data), subject, schema_id, version)

    def _find(self, raw: Mapping[str, Any], subject: str, kind: str | None) -> tuple[int, int | None, Encode]:
        schema_id, version, text = raw.get("schema_id"), raw.get("schema_version"), raw.get("schema")
        _check(subject, schema_id, version, text, kind)
        key = (subject, schema_id, version, text, kind)
        with self._lock:
            known = self._known.get(key)
            if known is None or known[3] < time.monotonic():
                known = self._known[key] = self._ask(subject, schema_id, version, text, kind)
                while len(self._known) > _ENCODERS_MAX:
                    self._known.popitem(last=False)
        return known[:3]

    def _ask(
        self, subject: str, schema_id: int | None, version: int | None, text: str | None, kind: str | None
    ) -> tuple[int, int | None, Encode, float]:
        for_ever = float("inf")
        if text is not None:
            schema_id = self._client.register(subject, _KINDS[kind or "AVRO"], text)
        if schema_id is not None:
            return schema_id, None, encoder(self._client.schema(schema_id)), for_ever
        found = self._client.version(subject, "latest" if version is None else version)
        ends = time.monotonic() + _LATEST_S if version is None else for_ever
        return found.schema_id, found.version, encoder(found.schema), ends


def _check(subject: Any, schema_id: Any, version: Any, text: Any, kind: Any) -> None:
    if kind is None and text is not None:
        raise bad_request("a schema needs its type: AVRO, JSONSCHEMA or PROTOBUF")
    for name, found, wanted in (
        ("subject", subject, str),
        ("schema", text, str),
        ("schema_id", schema_id, int),
        ("schema_version", version, int),
    ):
        if found is not None and (not isinstance(found, wanted) or isinstance(found, bool)):
            raise bad_request(f"{name} is not a {'text' if wanted is str else 'number'}")
    if sum(each is not None for each in (schema_id, version, text)) > 1:
        raise bad_request("a schema is named by one of schema, schema_id and schema_version")
