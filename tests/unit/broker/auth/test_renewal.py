"""Certificates that change while a broker runs: by their files, and by its settings."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.client.connection import Connection
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.admin import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tailrace.wire.apis.data import MetadataRequest, MetadataResponse
from tests.forged import Forged

from .secured import secured
from .test_hostile_certificates import told_of

PATIENCE_SECONDS = 20
BROKER_TYPE = 4
SECRET = "store-secret"
KEYSTORE = "listener.name.tls.ssl.keystore.location"
HOSTS = ["127.0.0.1", "localhost"]
ROOT, LATER = Forged("root", is_authority=True), Forged("later", is_authority=True)
OWN = Forged("broker", ROOT, hosts=HOSTS)
RENEWED = Forged("broker", LATER, hosts=HOSTS)


class Files:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.own = folder / "own.pem"
        OWN.store(self.own)
        self.settings = {"ssl.keystore.location": str(self.own), "ssl.truststore.location": self.trust(ROOT)}

    def trust(self, authority: Forged) -> str:
        path = self.folder / f"{authority.certificate.serial_number}.pem"
        if not path.exists():  # Written anew, it would be read again.
            path.write_text(authority.pem())
        return str(path)

    def client(self, authority: Forged) -> dict[str, str]:
        return {"security.protocol": "SSL", "ssl.truststore.location": self.trust(authority)}

    def replace_own(self, forged: Forged) -> None:
        """As an operator does it: a new file in the place of the old one."""
        new = self.folder / "new.pem"
        forged.store(new)
        os.replace(new, self.own)


async def wait(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(0.02)


def resource_of(broker: str, settings: dict[str, str]) -> IncrementalAlterConfigsRequest.AlterConfigsResource:
    request = IncrementalAlterConfigsRequest
    configs = [request.AlterableConfig(name=name, value=text, config_operation=0) for name, text in settings.items()]
    return request.AlterConfigsResource(resource_type=BROKER_TYPE, resource_name=broker, configs=configs)


async def alter(connection: Connection, settings: dict[str, str], broker: str = "1") -> tuple[int, str]:
    request = IncrementalAlterConfigsRequest(resources=[resource_of(broker, settings)])
    answer = await connection.call(request, IncrementalAlterConfigsResponse)
    (told,) = answer.responses
    return told.error_code, told.error_message or ""


async def test_files_that_change_are_taken_up_and_bad_ones_are_not(tmp_path: Path, caplog):
    caplog.set_level("INFO")
    files = Files(tmp_path)
    async with secured(**files.settings, ssl_files_check_interval_ms="50") as world:
        old = await world.log_in("TLS", files.client(ROOT))
        with pytest.raises(KafkaError, match="not trusted"):
            await world.log_in("TLS", files.client(LATER))
        for bad, cause in [
            (None, "neither a PKCS12 store nor PEM"),
            (Forged("broker", LATER, hosts=HOSTS, days=(-9, -1)), "has expired"),
            (Forged("broker", LATER, hosts=HOSTS, days=(1, 9)), "not valid yet"),
            (Forged("another", LATER, hosts=HOSTS), "ssl.allow.dn.changes"),
            (Forged("broker", LATER, hosts=HOSTS[:1]), "DNS:localhost: add them"),
        ]:
            caplog.clear()
            if bad is None:
                files.own.write_text("garbage")
            else:
                files.replace_own(bad)
            await wait(lambda: caplog.text.count("new certificates cannot be used") == 2)
            assert [cause in each for each in told_of(caplog, "cause")].count(True) == 2
            await world.log_in("TLS", files.client(ROOT))
        caplog.clear()
        await asyncio.sleep(0.3)
        assert (
            "certificates" not in caplog.text
        )  # One line for each listener and change, however often it is looked at.
        files.replace_own(RENEWED)
        await wait(lambda: caplog.text.count("certificates were read again") == 2)
        await world.log_in("TLS", files.client(LATER))
        with pytest.raises(KafkaError, match="not trusted"):
            await world.log_in("TLS", files.client(ROOT))
        # Who was there before is there still.
        await old.call(MetadataRequest(topics=None), MetadataResponse)


async def test_a_listener_is_told_where_its_new_certificate_is(tmp_path: Path, caplog):
    caplog.set_level("INFO")
    files = Files(tmp_path)
    store = RENEWED.store_pkcs12(tmp_path / "renewed.p12", SECRET)
    given = {KEYSTORE: store, "listener.name.tls.ssl.keystore.password": SECRET}
    async with secured(**files.settings) as world:
        admin = await world.log_in("OPEN")
        for settings, cause in [
            ({KEYSTORE: "/none.pem"}, "cannot be read on this machine"),
            ({KEYSTORE: store}, "which is missing: see ssl.keystore.password"),
            ({KEYSTORE: Forged("another", ROOT, hosts=HOSTS).store(tmp_path / "a.pem")}, "ssl.allow.dn.changes=true"),
            ({KEYSTORE: Forged("broker", ROOT, hosts=HOSTS, days=(-9, -1)).store(tmp_path / "b.pem")}, "has expired"),
            ({"listener.name.gone.ssl.keystore.location": store}, "no such listener with TLS"),
            ({"listener.name.tls.ssl.client.auth": "required"}, "Cannot update these configs dynamically"),
        ]:
            code, told = await alter(admin, settings)
            assert (code, cause in told) == (ErrorCode.INVALID_REQUEST, True), told
        code, told = await alter(admin, given, broker="")
        assert (code, "at default cluster level" in told) == (ErrorCode.INVALID_REQUEST, True)
        await world.log_in("TLS", files.client(ROOT))
        assert await alter(admin, given) == (0, "")
        await wait(lambda: "certificates were read again" in caplog.text)
        await world.log_in("TLS", files.client(LATER))
        # The other listener has what it had.
        with pytest.raises(KafkaError, match="not trusted"):
            await world.log_in("BOTH", {**files.client(LATER), "security.protocol": "SSL"})
        described = await describe(admin, [*given, "listener.name.both.plain.sasl.jaas.config"])
        assert described == {
            KEYSTORE: store,
            "listener.name.tls.ssl.keystore.password": None,
            "listener.name.both.plain.sasl.jaas.config": None,
        }
        assert SECRET not in caplog.text + repr(world.broker.config) + str([vars(each) for each in caplog.records])


async def describe(connection: Connection, names: list[str]) -> dict[str, str | None]:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=BROKER_TYPE, resource_name="1", configuration_keys=names
    )
    answer = await connection.call(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse)
    return {each.name: each.value for each in answer.results[0].configs}


async def test_the_same_path_again_reads_the_file_again(tmp_path: Path, caplog):
    caplog.set_level("INFO")
    files = Files(tmp_path)
    path = {KEYSTORE: str(files.own), "ssl.keystore.location": str(files.own)}
    async with secured(**files.settings, ssl_files_check_interval_ms="0") as world:
        admin = await world.log_in("OPEN")
        assert await alter(admin, path) == (0, "")
        files.replace_own(Forged("another", LATER, hosts=HOSTS))
        code, told = await alter(admin, path)
        assert (code, "ssl.allow.dn.changes" in told) == (ErrorCode.INVALID_REQUEST, True)
        files.replace_own(RENEWED)
        await world.log_in("TLS", files.client(ROOT))
        assert await alter(admin, path) == (0, "")
        await wait(lambda: caplog.text.count("certificates were read again") == 2)
        await world.log_in("TLS", files.client(LATER))


async def test_of_several_resources_each_has_its_own_answer(tmp_path: Path):
    files = Files(tmp_path)
    bad = resource_of("1", {KEYSTORE: str(tmp_path / "none")})
    good = resource_of("", {"log.retention.ms": "1000"})
    async with secured(**files.settings) as world:
        admin = await world.log_in("OPEN")
        for resources, codes in (([bad, good], [42, 0]), ([good, bad], [0, 42]), ([bad], [42]), ([good], [0])):
            request = IncrementalAlterConfigsRequest(resources=resources)
            answer = await admin.call(request, IncrementalAlterConfigsResponse)
            assert [each.error_code for each in answer.responses] == codes
            assert [each.resource_name for each in answer.responses] == [each.resource_name for each in resources]


async def test_other_names_are_taken_where_that_is_allowed(tmp_path: Path, caplog):
    caplog.set_level("INFO")
    files = Files(tmp_path)
    allowed = {"ssl.allow.dn.changes": "true", "ssl.allow.san.changes": "true"}
    async with secured(**files.settings, **allowed, ssl_files_check_interval_ms="50") as world:
        files.replace_own(Forged("another", LATER, hosts=HOSTS[:1]))
        await wait(lambda: caplog.text.count("certificates were read again") == 2)
        await world.log_in("TLS", files.client(LATER))


async def test_lists_of_the_revoked_are_read_again(tmp_path: Path, caplog):
    caplog.set_level("INFO")
    files = Files(tmp_path)
    alice, lists = Forged("alice", ROOT), tmp_path / "lists.pem"
    lists.write_bytes(ROOT.revocations([]))
    settings = {**files.settings, "ssl.crl.location": str(lists), "ssl.client.auth": "required"}
    mine = files.client(ROOT) | {"ssl.keystore.location": alice.store(tmp_path / "alice.pem")}
    async with secured(**settings, ssl_files_check_interval_ms="50") as world:
        await (await world.log_in("TLS", mine)).call(MetadataRequest(topics=None), MetadataResponse)
        shutil.copy(lists, tmp_path / "before")
        lists.write_bytes(ROOT.revocations([alice]))
        # Listeners are looked at one after the other: another one may be first.
        await wait(lambda: "TLS" in told_of(caplog, "listener"))
        with pytest.raises(KafkaError):
            await (await world.log_in("TLS", mine)).call(MetadataRequest(topics=None), MetadataResponse)


async def test_the_log_tells_what_is_about_to_end(tmp_path: Path, caplog):
    files = Files(tmp_path)
    Forged("broker", ROOT, hosts=HOSTS, days=(-1, 20)).store(files.own)
    async with secured(**files.settings):
        await wait(lambda: bool(told_of(caplog, "days_left")))
    facts = [vars(each)["facts"] for each in caplog.records if "soon it is not valid" in each.message]
    assert facts == [{"what": "the certificate of CN=broker", "days_left": 19, "listeners": "TLS,BOTH"}]
    assert "not valid yet" not in caplog.text
    caplog.clear()
    Forged("broker", ROOT, hosts=HOSTS, days=(1, 200)).store(files.own)
    async with secured(**files.settings):
        await wait(lambda: "a certificate is not valid yet" in caplog.text)
    caplog.clear()
    Forged("broker", ROOT, hosts=HOSTS, days=(-1, 20)).store(files.own)
    async with secured(**files.settings, ssl_expiry_warning_days="10"):
        await asyncio.sleep(0.1)
    assert not told_of(caplog, "days_left")
