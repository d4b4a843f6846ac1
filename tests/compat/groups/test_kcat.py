"""kcat -G: an older librdkafka (Debian's) as a group of one that goes on where it stopped."""

import subprocess
from collections.abc import Callable

import pytest

from tests.compat.clients import DEADLINE_S

pytestmark = pytest.mark.needs("kcat")


def _kcat(bootstrap: str, group: str, topic: str, count: int, **settings: str) -> tuple[list[tuple[int, ...]], str]:
    """(partition, offset, value) of so many records, and what it says about the group."""
    words = [f"-X{name.replace('_', '.')}={value}" for name, value in settings.items()]
    command = ["kcat", "-b", bootstrap, "-G", group, "-c", str(count), "-f", "%p %o %s\\n", *words]
    done = subprocess.run([*command, topic], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    return [tuple(map(int, line.split())) for line in done.stdout.splitlines()], done.stderr


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_kcat_goes_on_where_it_stopped(bootstrap: str, create_topic: Callable[..., str], strategy: str):
    topic = create_topic(2)
    lines = "".join(f"{number}\n" for number in range(100))
    for partition in ("0", "1"):
        command = ["kcat", "-P", "-b", bootstrap, "-t", topic, "-p", partition]
        subprocess.run(command, input=lines, text=True, timeout=DEADLINE_S, check=True)
    settings = {"partition_assignment_strategy": strategy, "auto_offset_reset": "earliest"}
    first, said = _kcat(bootstrap, f"group-of-{topic}", topic, 150, **settings)
    rest, _ = _kcat(bootstrap, f"group-of-{topic}", topic, 50, **settings)
    assert f"{topic} [0], {topic} [1]" in said
    assert sorted(first + rest) == [(partition, number, number) for partition in (0, 1) for number in range(100)]
