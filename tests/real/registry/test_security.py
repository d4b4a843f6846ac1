"""A registry beside a secure broker: TLS, the cluster's users, and its ACLs."""

import json
import ssl
from collections.abc import Callable, Iterator

import pytest

from tailrace.testing import Broker

from .asking import Answer, ask, avro, wait_until

Ask = Callable[..., Answer]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(secure=True, registry=True, start_timeout_s=60) as found:
        yield found


@pytest.fixture(scope="module")
def asked(broker: Broker) -> Ask:
    context = ssl.create_default_context(cafile=f"{broker.data}/security/authority.pem")

    def ask_it(method: str, path: str, content=None, **options) -> Answer:
        return ask(broker.registry_url, method, path, content, context=context, **options)

    return ask_it


def login_of(settings) -> tuple[str, str]:
    return settings.login.username, settings.login.password


def test_it_speaks_tls_and_lets_nobody_in_without_a_login(broker, asked):
    assert broker.registry_url.startswith("https://")
    answer = asked("GET", "/subjects")
    assert (answer.status, answer.code) == (401, 401)
    assert answer.headers["WWW-Authenticate"].startswith("Basic")
    assert asked("GET", "/subjects", login=("admin", "wrong")).status == 401
    assert asked("GET", "/subjects", headers={"Authorization": "Basic ###"}).status == 401
    assert asked("GET", "/subjects", headers={"Authorization": "Bearer a.b.c"}).status == 401


def test_users_may_what_the_acls_of_topics_say(broker, asked):
    admin = login_of(broker.client_settings)
    assert asked("POST", "/subjects/orders-value/versions", avro("a"), login=admin).status == 200
    assert asked("POST", "/subjects/secret-value/versions", avro("b"), login=admin).status == 200
    writer = login_of(broker.user("writer", ["write topic:orders-value", "read topic:orders-value"]))
    reader = login_of(broker.user("reader", ["read topic:orders-value"]))
    nobody = login_of(broker.user("nobody"))
    wait_until(lambda: asked("GET", "/subjects", login=writer).content == ["orders-value"], 30)
    assert asked("POST", "/subjects/orders-value/versions", avro("a", "c"), login=writer).status == 200
    denied = asked("POST", "/subjects/secret-value/versions", avro("b", "c"), login=writer)
    assert (denied.status, denied.code) == (403, 40301)
    assert "User:writer is denied operation Write on Subject: secret-value" in denied.content["message"]
    wait_until(lambda: asked("GET", "/subjects", login=reader).content == ["orders-value"], 30)
    assert asked("GET", "/subjects/orders-value/versions/1", login=reader).status == 200
    assert asked("GET", "/schemas/ids/1", login=reader).status == 200
    assert asked("GET", "/schemas/ids/2", login=reader).status == 403
    assert asked("POST", "/subjects/orders-value/versions", avro("a", "d"), login=reader).status == 403
    assert asked("DELETE", "/subjects/orders-value", login=writer).status == 403
    assert asked("PUT", "/config/orders-value", {"compatibility": "NONE"}, login=writer).status == 403
    assert asked("PUT", "/config", {"compatibility": "NONE"}, login=writer).status == 403
    assert asked("PUT", "/mode", {"mode": "READONLY"}, login=writer).status == 403
    assert asked("GET", "/schemas", login=nobody).content == []
    assert asked("GET", "/subjects/orders-value/versions", login=nobody).status == 403
    assert asked("PUT", "/config", {"compatibility": "BACKWARD"}, login=admin).status == 200


def test_what_may_not_be_read_may_not_be_referred_to_and_is_not_named(broker, asked):
    """Else a schema of one's own would show it, with the types of its references written out."""
    admin = login_of(broker.client_settings)
    hidden = {"schema": '{"type": "record", "name": "Hidden", "fields": [{"name": "plan", "type": "string"}]}'}
    assert asked("POST", "/subjects/hidden/versions", hidden, login=admin).status == 200
    spy = login_of(broker.user("spy", ["read topic:spy*", "write topic:spy*"]))
    wait_until(lambda: asked("POST", "/subjects/spy/versions", avro("spy"), login=spy).status == 200, 30)
    reference = {"name": "Hidden", "subject": "hidden", "version": 1}
    outer = {"type": "record", "name": "Outer", "fields": [{"name": "h", "type": "Hidden"}]}
    new = {"schema": json.dumps(outer), "references": [reference]}
    for path in ("/subjects/spy-outer/versions", "/subjects/spy", "/compatibility/subjects/spy/versions"):
        refused = asked("POST", path, new, login=spy)
        assert (refused.status, refused.code) == (403, 40301), path
        assert "hidden" in refused.content["message"]
    assert asked("POST", "/subjects/spy-outer/versions", new, login=admin).status == 200
    assert asked("GET", "/subjects/spy-outer/versions/1", login=spy).status == 200
    # Nor is a subject of another context found for one of the default one.
    assert asked("POST", "/subjects/:.green:spy-plan/versions", hidden, login=admin).status == 200
    for path in ("/subjects/spy-plan/versions/1", "/subjects/spy-plan/versions/1/schema"):
        assert asked("GET", path, login=admin).status == 200
        assert asked("GET", path, login=spy).status == 404
    assert asked("POST", "/subjects/spy-plan", hidden, login=admin).status == 200
    assert asked("POST", "/subjects/spy-plan", hidden, login=spy).status == 404
    # Nor are names told that stand for a subject.
    assert asked("PUT", "/config/hidden-name", {"alias": "spy"}, login=admin).status == 200
    for user, seen in ((admin, ["hidden-name"]), (spy, None)):
        listed = asked("GET", "/schemas?aliases=true", login=user).content
        assert next(each for each in listed if each["subject"] == "spy").get("aliases") == seen


def test_a_prefixed_acl_of_a_topic_covers_its_subjects(broker, asked):
    admin = login_of(broker.client_settings)
    for subject in ("parcels-value", "parcels-key", "parcel-value"):
        assert asked("POST", f"/subjects/{subject}/versions", avro(subject[:6]), login=admin).status == 200
    clerk = login_of(broker.user("clerk", ["read topic:parcels*", "write topic:parcels*"]))
    covered = ["parcels-key", "parcels-value"]
    wait_until(lambda: asked("GET", "/subjects", login=clerk).content == covered, 30)
    assert asked("POST", "/subjects/parcels-new/versions", avro("a"), login=clerk).status == 200
    assert asked("GET", "/subjects/parcels-key/versions/latest", login=clerk).status == 200
    assert asked("GET", "/subjects/parcel-value/versions/latest", login=clerk).status == 403
    assert asked("POST", "/subjects/parcel-value/versions", avro("parcel", "b"), login=clerk).status == 403
    assert asked("DELETE", "/subjects/parcels-value", login=clerk).status == 403  # That is DELETE, and was not given.
    # In a context the subject has another name.
    assert asked("POST", "/subjects/:.green:parcels-value/versions", avro("a"), login=clerk).status == 403


def test_confluents_client_logs_in(broker):
    from confluent_kafka.schema_registry import SchemaRegistryClient

    settings = {
        "url": broker.registry_url,
        "basic.auth.user.info": ":".join(login_of(broker.client_settings)),
        "ssl.ca.location": f"{broker.data}/security/authority.pem",
    }
    with SchemaRegistryClient(settings) as client:
        assert isinstance(client.get_subjects(), list)
