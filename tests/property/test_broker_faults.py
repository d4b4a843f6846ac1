"""A whole broker against random faults of its disk: see `faults.scenario`. A seed that fails tells its story."""

import pytest

from tests.property.faults.scenario import Scenario


def _run(seed: int) -> None:
    scenario = Scenario(seed)
    try:
        scenario.run()
    except BaseException as error:
        error.add_note(f"seed {seed}:\n" + "\n".join(scenario.story))
        raise


@pytest.mark.parametrize("seed", range(60))
def test_what_was_promised_survives(seed: int) -> None:
    _run(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1600))
def test_what_was_promised_survives_many_seeds(seed: int) -> None:
    _run(seed)
