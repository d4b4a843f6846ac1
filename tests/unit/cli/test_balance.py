"""The commands of the balancer: what they refuse, and when the one that is always there has something to do."""

import pytest

from tailrace.balance.run.look import Sight
from tailrace.balance.run.throttles import TopicSettings
from tailrace.cli import main
from tailrace.cli.balance.always import _is_due
from tailrace.client.admin import BrokerEntry

MARKED = {"t": TopicSettings(1, None, frozenset(), is_foreign=False, is_covered=False)}


def sight(*live: int) -> Sight:
    return Sight(tuple(BrokerEntry(each, "h", 1, None, is_fenced=each not in live) for each in (1, 2, 3)), (), {})


def test_the_balancer_beside_the_first_live_broker_works():
    assert _is_due(sight(1, 2, 3), {}, 1, is_still=False)
    assert not _is_due(sight(1, 2, 3), {}, 2, is_still=False)
    assert _is_due(sight(2, 3), {}, 2, is_still=False)
    assert _is_due(sight(2, 3), {}, None, is_still=False)
    assert not _is_due(sight(), {}, 1, is_still=False)


def test_a_run_of_somebody_else_is_taken_over_only_once_it_stands_still():
    assert not _is_due(sight(1, 2), MARKED, 1, is_still=False)
    assert _is_due(sight(1, 2), MARKED, 1, is_still=True)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("run", "--drain", "1", "--only-to", "1"), "broker 1 cannot be emptied and filled"),
        (("plan", "--spread", "0"), "is not a percentage above 0"),
        (("plan", "--spread", "much"), "is not a percentage above 0"),
        (("run", "--throttle", "fast"), "speed"),
        (("run", "--drain", "x"), "invalid int value"),
    ],
)
def test_bad_words(words: tuple[str, ...], reason: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(["balance", *words, "--bootstrap", "127.0.0.1:1"])
    assert ended.value.code == 2
    assert reason in capsys.readouterr().err


def test_metrics_that_are_nowhere(capsys: pytest.CaptureFixture[str]):
    assert main(["balance", "plan", "--metrics", "/nowhere", "--bootstrap", "127.0.0.1:1"]) == 1
    assert "is neither a URL, such as http://127.0.0.1:9404, nor a folder" in capsys.readouterr().err


def test_a_cluster_that_is_not_there(capsys: pytest.CaptureFixture[str]):
    assert main(["balance", "plan", "--wait", "0.2", "--timeout", "0.2", "--bootstrap", "127.0.0.1:1"]) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err
