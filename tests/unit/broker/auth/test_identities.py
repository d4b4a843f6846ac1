"""Certificates that change while a broker runs."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.model.errors import KafkaError
from tailrace.wire.apis.data import MetadataRequest, MetadataResponse
from tests.certificates import Authority

from .secured import certificates, client_settings, secured

PATIENCE_SECONDS = 10


def replace(path: Path, source: Path) -> None:
    """As an operator does it: a new file in the place of the old one."""
    shutil.copy(source, path.with_suffix(".new"))
    os.replace(path.with_suffix(".new"), path)


async def wait_log(caplog: pytest.LogCaptureFixture, text: str) -> None:
    await wait(lambda: text in caplog.text)


async def wait(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(0.02)


async def test_a_new_certificate_is_taken_up_and_a_bad_one_is_not(tmp_path: Path, caplog):
    caplog.set_level("INFO")
    own, trusted = tmp_path / "own.pem", tmp_path / "trusted.pem"
    shutil.copy(certificates().broker.joined(), own)
    shutil.copy(certificates().authority.certificate, trusted)
    files = {"ssl.keystore.location": str(own), "ssl.truststore.location": str(trusted)}
    later = Authority(tmp_path / "later", "later")
    renewed = later.sign("broker", subject_alt_name="IP:127.0.0.1")
    trusts_later = client_settings("TLS") | {"ssl.truststore.location": str(later.certificate)}
    async with secured(**files, ssl_files_check_interval_ms="50") as world:
        old = await world.log_in("TLS")
        with pytest.raises(KafkaError, match="not trusted"):
            await world.log_in("TLS", trusts_later)
        own.write_text("garbage")
        await wait_log(caplog, "new certificates cannot be used")
        await world.log_in("TLS")
        replace(own, renewed.joined())
        await wait_log(caplog, "certificates were read again")
        # Each listener is read by itself.
        await wait(lambda: caplog.text.count("certificates were read again") == 2)
        await world.log_in("TLS", trusts_later)
        with pytest.raises(KafkaError, match="not trusted"):
            await world.log_in("TLS")
        # Who was there before is there still.
        await old.call(MetadataRequest(topics=None), MetadataResponse)
        # One line for each listener and change, however often it is looked at.
        assert caplog.text.count("new certificates cannot be used") == 2
