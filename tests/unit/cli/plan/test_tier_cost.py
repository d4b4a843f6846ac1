"""What a tier costs, against what can be counted by hand."""

import json

import pytest

from tailrace.cli import main
from tailrace.cli.plan.sizing import Workload
from tailrace.cli.plan.tier import Prices, TierUse, decide_cost
from tailrace.cli.plan.units import DAY

PRICES = {"storage_gb_month": 0.02, "put_1000": 0.005, "get_1000": 0.0004, "egress_gb": 0.01}
# 1 TB a day for a month.
WORKLOAD = Workload(messages_per_s=1e9 / DAY, message_bytes=1000, retention_s=30 * DAY)


def test_a_terabyte_a_day() -> None:
    use = TierUse(history_reads=0.5, segment_bytes=1e9, part_bytes=1e7, read_bytes=1e6)
    cost = decide_cost(WORKLOAD, use, Prices(**PRICES))
    assert cost.stored_bytes == pytest.approx(30e12)
    assert cost.storage == pytest.approx(600)
    assert cost.puts == pytest.approx(30_000 * 102)
    assert cost.put == pytest.approx(15.3)
    assert cost.gets == pytest.approx(15e6 + 15_000)
    assert cost.egress == pytest.approx(150)
    assert cost.total == pytest.approx(600 + 15.3 + 15_015 * 0.0004 + 150)


def test_as_a_user_runs_it(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "prices.json"
    path.write_text(json.dumps(PRICES))
    workload = ["plan", "--rate", "1B/day", "--size", "1KB", "--retention", "30d"]
    assert main([*workload, "--json"]) == 0
    assert "tier" not in json.loads(capsys.readouterr().out)
    assert main([*workload, "--tier-prices", str(path), "--local-retention", "1d", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["stored_bytes"] == pytest.approx(3e12), "three replicas of a day"
    assert plan["tier"]["stored_bytes"] == pytest.approx(30e12), "a month, once"
    assert main([*workload, "--tier-prices", str(path)]) == 0
    assert "storage\t30 TB\t600.00" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("prices", "problem"),
    [
        ("{}", "egress_gb is missing"),
        (json.dumps(PRICES | {"tax": 1}), "tax is no price"),
        (json.dumps(PRICES | {"put_1000": "x"}), "'x', which is not a number"),
        ("[]", "no JSON object"),
    ],
)
def test_prices_that_cannot_be(prices: str, problem: str, tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "prices.json"
    path.write_text(prices)
    words = ["plan", "--rate", "1k/s", "--size", "1KB", "--retention", "1d", "--tier-prices", str(path)]
    assert main(words) == 1
    assert problem in capsys.readouterr().err
