"""`tailrace debug` on real processes; stalls that are told while they last."""

import asyncio
import json
import logging
import os
import stat
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.broker.context import BoundListener, RequestContext
from tailrace.cli.debug.sampling import Samples, sample
from tailrace.cli.debug.stalls import StallWatch

PATIENCE_S = 60.0
SECRET = "hunter2-of-the-store"


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tailrace", "debug", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """In a folder with a name that is too long for a socket."""
    folder = tmp_path_factory.mktemp("d" * 120)
    command = [sys.executable, "-m", "tailrace", "up", "--port", "0", "--data", str(folder)]
    command += ["--set", f"ssl.truststore.password={SECRET}", "--set", "log.retention.hours=7"]
    with (folder.parent / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready: ")
        deadline = time.monotonic() + PATIENCE_S
        while not (folder / "debug.pid").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield folder
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
        assert not (folder / "debug.sock").exists(), "a clean stop leaves nothing"
    finally:
        process.kill()
        process.communicate()


def test_only_its_own_user_may_look(node: Path) -> None:
    assert stat.S_IMODE(os.stat(node / "debug.sock").st_mode) == 0o600


def test_stacks_are_those_of_threads_and_tasks(node: Path) -> None:
    told = _run("stacks", "--data", str(node))
    assert told.returncode == 0, told.stderr
    assert "thread " in told.stdout
    assert "Stack for <Task" in told.stdout
    # The folder of a whole cluster is taken as well.
    assert "thread " in _run("stacks", "--data", str(node.parent)).stdout


def test_a_profile_says_how_idle_the_loop_is(node: Path, tmp_path: Path) -> None:
    folded = tmp_path / "folded"
    told = _run("profile", "--data", str(node), "--seconds", "0.5", "--folded", str(folded))
    assert told.returncode == 0, told.stderr
    assert "the loop was idle in" in told.stdout
    stack, _, count = folded.read_text().splitlines()[0].rpartition(" ")
    assert ";" in stack
    assert int(count) > 0


def test_a_bundle_has_what_helps_and_no_secret(node: Path, tmp_path: Path) -> None:
    path = tmp_path / "bundle.tar.gz"
    told = _run("bundle", "--data", str(node), "--output", str(path), "--seconds", "0.2")
    assert told.returncode == 0, told.stderr
    with tarfile.open(path) as archive:
        files = {entry.name.rpartition("/")[2]: archive.extractfile(entry).read() for entry in archive}  # type: ignore[union-attr]
    assert {"state.json", "stacks.txt", "profile.txt", "files.txt", "meminfo"} <= set(files)
    state = json.loads(files["state.json"])
    assert state["settings"]["log.retention.hours"] == "7"
    assert state["settings"]["ssl.truststore.password"] == "[hidden]"
    assert any("ready" in line for line in state["log"])
    assert not any(SECRET.encode() in data for data in files.values())
    again = _run("bundle", "--data", str(node), "--output", str(path), "--seconds", "0.2")
    assert (again.returncode, "cannot write" in again.stderr) == (1, True), "nothing is written over"


def test_where_no_node_runs_it_says_so(tmp_path: Path) -> None:
    told = _run("stacks", "--data", str(tmp_path))
    assert told.returncode == 1
    assert "no node runs in" in told.stderr


def _hold(context: RequestContext) -> None:
    assert context.client_id == "ann"
    time.sleep(1.0)


async def test_a_stall_is_told_with_its_stack_and_its_request(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "tailrace.stalls")
    context = RequestContext(
        api_key=3,
        api_version=12,
        correlation_id=1,
        client_id="ann",
        peer="10.0.0.7:5000",
        listener=BoundListener("PLAINTEXT", "127.0.0.1", 9092),
    )
    watch = StallWatch(400)
    watch.start()
    try:
        await asyncio.sleep(0.5)
        assert not caplog.records, "an idle loop is not held"
        _hold(context)
    finally:
        watch.stop()
    (record,) = caplog.records
    facts = record.facts  # type: ignore[attr-defined]
    assert "test_debug.py" in facts["stack"]
    assert "_hold" in facts["stack"].split(" < ")[0]
    assert (facts["api"], facts["client"], facts["peer"]) == ("Metadata", "ann", "10.0.0.7:5000")


async def test_samples_show_what_is_busy() -> None:
    async def work() -> None:
        while True:
            ends = time.monotonic() + 0.02
            while time.monotonic() < ends:
                pass
            await asyncio.sleep(0)

    task = asyncio.ensure_future(work())
    samples = Samples.from_json((await sample(0.3)).to_json())
    task.cancel()
    busy = sum(count for stack, count in samples.stacks.items() if any("work" in name for name in stack))
    assert busy > sum(samples.stacks.values()) / 2
    assert "work" in samples.table()
