"""Transactional producers that are killed and come back under the same id, and what read_committed consumers see."""

import sys
from collections.abc import Callable

import pytest

from .journal import Writer, check_all_or_nothing
from .reading import READERS
from .writer import PARTITIONS, WRITERS

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kills processes")


def _start(library: str, bootstrap: str, topic: str, transactional_id: str, first: int) -> Writer:
    module = "tests.compat.transactions.writer"
    return Writer([sys.executable, "-m", module, library, bootstrap, topic, transactional_id, str(first)])


@pytest.mark.parametrize("library", WRITERS)
def test_a_killed_producer_leaves_whole_transactions(bootstrap: str, create_topic: Callable[..., str], library: str):
    topic = create_topic(PARTITIONS)
    begun: list[int] = []
    ended: list[int] = []
    for life in range(3):
        writer = _start(library, bootstrap, topic, f"writer-of-{topic}", 1000 * life)
        writer.wait_for(20)
        if life < 2:
            writer.kill()
        else:
            writer.close()
        begun += writer.begun
        ended += writer.ended
    for name, read in READERS.items():
        visible = check_all_or_nothing(begun, ended, read(bootstrap, topic, PARTITIONS))
        assert visible >= 36, name
