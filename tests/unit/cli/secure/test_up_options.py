"""What `tailrace up` says of security before it starts anything."""

import pytest

from tailrace.cli import main


@pytest.mark.parametrize(
    ("words", "told"),
    [(["--secure", "--brokers", "3"], "sets up one broker"), (["--name", "queue.example"], "that --secure makes")],
)
def test_options_that_do_not_go_together(words, told, capsys):
    assert main(["up", *words]) == 1
    assert told in capsys.readouterr().err


def test_an_open_broker_says_so(capsys):
    # The port is judged after that, so that nothing starts.
    assert main(["up", "--host", "203.0.113.7", "--port", "1", "--set", "node.id=x"]) == 1
    assert "anyone who reaches 203.0.113.7 may do everything" in capsys.readouterr().err
