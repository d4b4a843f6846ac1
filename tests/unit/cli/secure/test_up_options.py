"""What `tailrace up` says of security before it starts anything."""

import pytest

from tailrace.cli import main


def test_a_name_is_for_a_certificate(capsys):
    assert main(["up", "--name", "queue.example"]) == 1
    assert "that --secure makes" in capsys.readouterr().err


@pytest.mark.parametrize("brokers", ["1", "3"])
def test_what_was_made_secure_is_not_opened(brokers, tmp_path, capsys):
    (tmp_path / "security").mkdir()
    (tmp_path / "security" / "authority.pem").touch()
    assert main(["up", "--data", str(tmp_path), "--brokers", brokers]) == 1
    assert "was made with --secure" in capsys.readouterr().err


def test_an_open_broker_says_so(capsys):
    # The port is judged after that, so that nothing starts.
    assert main(["up", "--host", "203.0.113.7", "--port", "1", "--set", "node.id=x"]) == 1
    assert "anyone who reaches 203.0.113.7 may do everything" in capsys.readouterr().err
