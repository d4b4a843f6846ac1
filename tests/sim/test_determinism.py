"""The same seed gives the same run, in any process and under any hash seed."""

import os
import re
import subprocess
import sys

import pytest

SEED = 23  # With a group of both protocols, transactions and a loop.


def digest(seed: int, hash_seed: int, *options: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "tailrace", "sim", str(seed), "--quiet", *options],
        env=os.environ | {"PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    found = re.search(r"trace ([0-9a-f]{16})", ran.stdout)
    assert found is not None, ran.stdout + ran.stderr
    return found[1]


def test_a_seed_decides_everything():
    first = digest(SEED, hash_seed=1)
    assert first == digest(SEED, hash_seed=2)
    assert first != digest(SEED + 1, hash_seed=1)


@pytest.mark.long
def test_damage_is_decided_by_the_seed_too():
    first = digest(SEED, 1, "--damage")
    assert first == digest(SEED, 2, "--damage")
    assert first != digest(SEED, 1)
