"""The coordinator's machine alone, against members of all kinds: many short plays, each decided by its seed."""

import pytest

from tests.sim.machine.play import KINDS, Play

SEEDS = 15


@pytest.mark.parametrize("kind", KINDS)
def test_groups_keep_their_promises(kind):
    for seed in range(SEEDS):
        try:
            Play(seed, kind).run()
        except Exception as error:
            error.add_note(f"seed {seed} of {kind}")
            raise
