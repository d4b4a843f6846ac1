"""Three nodes taken from the first version to this one and back, node by node, under load: nothing is lost."""

import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from tests.nodes import NODE_IDS, Nodes

from .observe import create_topic, wait_in_sync
from .traffic import Traffic

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]
# CHANGELOG.md names it too.
FIRST_VERSION = "6e59760"
PARTITIONS = 3
PAUSE_MAX_S = 10.0


class Mixed(Nodes):
    """`sources[node]` is where the node's code is."""

    def __init__(self, folder: Path, source: Path) -> None:
        super().__init__(folder, lambda _: {})
        self.sources = dict.fromkeys(NODE_IDS, source)

    def launcher(self, node_id: int) -> list[str]:
        return ["env", f"PYTHONPATH={self.sources[node_id]}"]

    def roll(self, source: Path, traffic: Traffic) -> None:
        for node_id in NODE_IDS:
            traffic.begin_gap()
            self.sources[node_id] = source
            self.restart(node_id)
            traffic.wait_acked(200)
            wait_in_sync(self.bootstrap, traffic.topic)
            gap_s = traffic.longest_gap_s()
            print(f"node {node_id} of {source}: {gap_s * 1000:.0f} ms without an acknowledgement")
            assert gap_s < PAUSE_MAX_S


@pytest.fixture
def first_version(tmp_path: Path) -> Path:
    done = subprocess.run(["git", "archive", FIRST_VERSION, "src"], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"this checkout does not have commit {FIRST_VERSION}: {done.stderr.decode().strip()}")
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extractall(tmp_path / "first", filter="data")
    return tmp_path / "first" / "src"


def test_there_and_back(first_version: Path, tmp_path: Path):
    this_version = ROOT / "src"
    with Mixed(tmp_path, first_version) as nodes:
        create_topic(nodes.bootstrap, "work", PARTITIONS)
        traffic = Traffic(nodes.bootstrap, "work", PARTITIONS, records_per_second=500)
        traffic.wait_acked(200)
        nodes.roll(this_version, traffic)
        # Metadata that only the new nodes have written so far.
        create_topic(nodes.bootstrap, "later", PARTITIONS)
        nodes.roll(first_version, traffic)
        traffic.finish()
        traffic.check()
