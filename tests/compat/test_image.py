"""The image of deploy/Containerfile: built by buildah, small, without rights, and a broker that clients reach.

Needs buildah and its base: `python:3.11-slim`, or what TAILRACE_IMAGE_BASE names, such as one made by debootstrap.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests.parts import ROOT, find_program, miss_part

pytestmark = pytest.mark.long

COMPRESSED_MAX_BYTES = 150_000_000
DEADLINE_S = 120.0
ISOLATION = ("--isolation", "chroot")


def buildah(*words: str, timeout_s: float = 1200) -> str:
    done = subprocess.run(["buildah", *words], capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    if find_program("buildah") is None:
        miss_part("buildah is not installed")
    base = os.environ.get("TAILRACE_IMAGE_BASE", "docker.io/library/python:3.11-slim")
    found = subprocess.run(["buildah", "inspect", "--type", "image", base], capture_output=True, check=False)
    if found.returncode != 0:
        pulled = subprocess.run(["buildah", "pull", base], capture_output=True, text=True, timeout=600, check=False)
        if pulled.returncode != 0:
            miss_part(f"the image {base} cannot be had: {pulled.stderr.strip()[-200:]}")
    name = f"localhost/tailrace-test-{os.getpid()}"
    extras = "[console,gateway,registry]"
    where = ("-f", str(ROOT / "deploy" / "Containerfile"), "-t", name, str(ROOT))
    # Whom pip trusts is the machine's matter.
    trusted = "--volume=/etc/ssl/certs:/etc/ssl/certs:ro"
    buildah("build", *ISOLATION, trusted, "--build-arg", f"BASE={base}", "--build-arg", f"EXTRAS={extras}", *where)
    yield name
    with suppress(AssertionError):
        buildah("rmi", name)


def test_it_is_small_and_has_no_rights(image: str, tmp_path: Path):
    facts = json.loads(buildah("inspect", "--type", "image", image))["OCIv1"]
    assert facts["config"]["User"] == "tailrace"
    assert facts["config"]["Entrypoint"] == ["tailrace"]
    buildah("push", "--quiet", image, f"oci:{tmp_path}/image:latest")
    (manifest,) = json.loads((tmp_path / "image" / "index.json").read_text())["manifests"]
    layers = json.loads((tmp_path / "image" / "blobs" / manifest["digest"].replace(":", "/")).read_text())["layers"]
    size = sum(each["size"] for each in layers)
    print(f"{size / 1e6:.0f} MB compressed, in layers of {[each['size'] for each in layers]}")
    assert all(each["mediaType"].endswith("gzip") for each in layers)
    assert size < COMPRESSED_MAX_BYTES


def test_a_broker_in_it_serves_clients_outside(image: str):
    with running(image, "29192") as process:
        producer = Producer({"bootstrap.servers": "127.0.0.1:29192", "message.timeout.ms": 60_000})
        producer.produce("from-outside", "hello")
        assert producer.flush(60) == 0
        consumer = Consumer({"bootstrap.servers": "127.0.0.1:29192", "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["from-outside"])
        (found,) = consumer.consume(1, 60)
        consumer.close()
        assert found.value() == b"hello"
        assert process.poll() is None


@contextmanager
def running(image: str, port: str) -> Iterator[subprocess.Popen]:
    container = buildah("from", image)
    command = ["buildah", "run", *ISOLATION, container, "--", "tailrace", "up", "--port", port]
    command += ["--data", "/var/lib/tailrace/data"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        deadline = time.monotonic() + DEADLINE_S
        while not (line := process.stdout.readline()).startswith("ready: "):
            assert line, "it has ended"
            assert time.monotonic() < deadline
        yield process
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(60)
        process.kill()
        assert process.stdout is not None
        process.stdout.close()
        buildah("rm", container)
