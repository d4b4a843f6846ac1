"""Rules over readings: when alerts begin, hold and end, and what they say."""

import pytest

from tailrace.apps.alerts.defaults import DEFAULT_RULES
from tailrace.apps.alerts.engine import Engine, Notice
from tailrace.apps.alerts.rules import Combine, Rule, RulesError, Sending, Take, parse_rules
from tailrace.apps.alerts.senders import slack_document, webhook_document
from tailrace.apps.scrape import Moment, Reading, parse_text

SENDING = Sending(repeat_seconds=100.0, resolve_seconds=10.0)


def rule(**more: object) -> Rule:
    return Rule(**{"name": "R", "summary": "{value} of {topic}", "metric": "m", "above": 0, **more})  # type: ignore[arg-type]


def both(at: float) -> Moment:
    """Clocks that agree."""
    return Moment(at, at)


def reading(text: str | None, at: float, instance: str = "one") -> Reading:
    return Reading(instance, both(at), None if text is None else parse_text(text))


def told(notices: list[Notice]) -> list[tuple[str, bool]]:
    return [(notice.alert.key, notice.is_firing) for notice in notices]


def run(engine: Engine, *steps: tuple[float, str | None]) -> list[list[tuple[str, bool]]]:
    return [told(engine.step(both(at), [reading(text, at)])) for at, text in steps]


def test_an_alert_begins_after_its_time_is_told_once_repeated_and_over_after_a_while() -> None:
    engine = Engine([rule(for_seconds=20)], SENDING)
    assert run(engine, (0, "m 1"), (10, "m 2"), (20, "m 2"), (30, "m 2"), (125, "m 2")) == [
        [],
        [],
        [("R", True)],
        [],
        [("R", True)],
    ]
    assert run(engine, (130, "m 0"), (131, "m 1"), (140, "m 0"), (145, "m 0"), (150, "m 0")) == [
        [],
        [],
        [],
        [("R", False)],
        [],
    ]


def test_what_does_not_hold_for_long_enough_is_never_told() -> None:
    engine = Engine([rule(for_seconds=20)], SENDING)
    assert run(engine, (0, "m 1"), (10, "m 0"), (20, "m 1"), (30, "m 1"), (39, "m 0")) == [[]] * 5
    assert engine.alerts == {}


def test_each_group_of_labels_is_an_alert_of_its_own() -> None:
    engine = Engine([rule(by=("topic",))], SENDING)
    text = 'm{topic="a",partition="0"} 1\nm{topic="a",partition="1"} 2\nm{topic="b"} 0\nm{topic="c"} 5'
    notices = engine.step(both(0), [reading(text, 0)])
    assert {notice.alert.key: notice.alert.summary for notice in notices} == {
        "R,topic=a": "3 of a",
        "R,topic=c": "5 of c",
    }


@pytest.mark.parametrize(
    ("combine", "value"), [(Combine.SUM, 7.0), (Combine.MAX, 4.0), (Combine.MIN, 1.0), (Combine.SPREAD, 3.0)]
)
def test_series_of_all_nodes_are_combined(combine: Combine, value: float) -> None:
    engine = Engine([rule(combine=combine)], SENDING)
    (notice,) = engine.step(both(0), [reading('m 1\nm{a="1"} 2', 0), reading("m 4", 0, "two")])
    assert notice.alert.value == value


def test_a_sum_of_nothing_is_zero_and_a_largest_of_nothing_is_nothing() -> None:
    nothing = [reading("other 1", 0)]
    assert len(Engine([rule(above=None, below=1)], SENDING).step(both(0), nothing)) == 1
    assert Engine([rule(above=None, below=1, combine=Combine.MAX)], SENDING).step(both(0), nothing) == []


def test_a_node_that_is_missing_is_an_alert_and_leaves_its_own_alerts_as_they_are() -> None:
    rules = [rule(by=("instance",)), rule(name="Down", metric="up", by=("instance",), above=None, below=1)]
    engine = Engine(rules, SENDING)
    assert told(engine.step(both(0), [reading("m 1", 0)])) == [("R,instance=one", True)]
    assert told(engine.step(both(50), [reading(None, 50)])) == [("Down,instance=one", True)]
    assert told(engine.step(both(55), [reading("m 0", 55)])) == []
    assert set(told(engine.step(both(75), [reading("m 0", 75)]))) == {
        ("R,instance=one", False),
        ("Down,instance=one", False),
    }


def test_what_holds_of_all_nodes_stays_while_nobody_tells_of_it() -> None:
    """Else whoever loses sight of a cluster would tell that all is well."""
    engine = Engine([rule(combine=Combine.MAX, for_seconds=5)], SENDING)
    assert run(engine, (0, "m 1"), (10, "m 1")) == [[], [("R", True)]]
    for at in (20, 30, 40):
        assert engine.step(both(at), [reading(None, at), reading("other 1", at, "two")]) == []
    assert told(engine.step(both(50), [reading(None, 50), reading("m 0", 50, "two")])) == [("R", False)]
    engine.step(both(60), [reading("m 1", 60)])
    assert engine.step(both(70), [reading(None, 70)]) == [], "nor does anything begin that nobody tells of"
    # A node that is not watched any more keeps nothing as it was.
    assert run(engine, (71, "m 1"), (80, "other 1"), (95, "other 1")) == [[("R", True)], [], [("R", False)]]


@pytest.mark.parametrize("jump", [-7200.0, 7200.0])
def test_a_clock_that_is_set_changes_nothing_about_how_long_something_lasts(jump: float) -> None:
    rules = [rule(for_seconds=20), rule(name="Grown", metric="c", take=Take.INCREASE, window_seconds=100, above=5)]
    engine = Engine(rules, SENDING)

    def step(at: float, text: str) -> list[tuple[str, bool]]:
        moment = Moment(at, 10_000 + at + (jump if at > 10 else 0))
        return told(engine.step(moment, [Reading("one", moment, parse_text(text))]))

    assert step(0, "m 1\nc 1") == []
    assert step(10, "m 1\nc 2") == []
    assert step(15, "m 1\nc 3") == [], "it does not hold for long enough yet"
    assert step(20, "m 1\nc 9") == [("R", True), ("Grown", True)]
    assert step(25, "m 0\nc 9") == []
    assert step(30, "m 0\nc 9") == [("R", False)]
    assert step(130, "m 0\nc 9") == [("Grown", False)]


def test_a_counter_counts_by_its_increase_also_where_it_begins_anew() -> None:
    engine = Engine([rule(take=Take.INCREASE, window_seconds=100, above=5)], SENDING)
    assert run(engine, (0, "m 100"), (10, "m 103"), (20, "m 2"), (30, "m 4")) == [[], [], [], [("R", True)]]
    # Once it is out of the window it does not count any more.
    assert run(engine, (35, "m 4"), (140, "m 4"), (151, "m 4")) == [[], [("R", False)], []]


def test_when_a_disk_is_full_is_told_by_how_it_fills() -> None:
    soon = rule(take=Take.HOURS_UNTIL_ZERO, combine=Combine.MIN, above=None, below=12, window_seconds=3600)
    engine = Engine([soon], SENDING)
    assert run(engine, (0, "m 1000"), (1800, "m 900")) == [[], [("R", True)]]
    (alert,) = engine.alerts.values()
    assert alert.value == pytest.approx(4.5)
    assert run(engine, (3000, "m 1000")) == [[("R", False)]], "it does not fall any more"


def test_ends_and_clocks_are_compared_with_now() -> None:
    ends = Engine([rule(take=Take.SECONDS_UNTIL, above=None, below=60)], SENDING)
    assert run(ends, (100, "m 200"), (150, "m 200")) == [[], [("R", True)]]
    skew = Engine([rule(take=Take.SKEW, combine=Combine.SPREAD, above=1)], SENDING)
    assert skew.step(both(0), [reading("m 100.5", 100), reading("m 101.2", 101, "two")]) == []
    assert len(skew.step(both(9), [reading("m 100.5", 100), reading("m 103", 101, "two")])) == 1


def test_one_metric_may_be_a_part_of_another() -> None:
    engine = Engine([rule(divide_by="n", above=None, below=0.2, combine=Combine.MIN, by=("d",))], SENDING)
    text = 'm{d="/a"} 10\nn{d="/a"} 100\nm{d="/b"} 50\nn{d="/b"} 100\nm{d="/c"} 0'
    assert told(engine.step(both(0), [reading(text, 0)])) == [("R,d=/a", True)]


def test_documents_have_what_receivers_look_for() -> None:
    engine = Engine(DEFAULT_RULES, SENDING)
    mbean = "kafka_controller_kafkacontroller"
    text = f"{mbean}_offlinepartitionscount 3\n{mbean}_activecontrollercount 1"
    engine.step(both(0), [reading(text, 0)])
    notices = engine.step(both(30), [reading(text, 30)])
    (alert,) = webhook_document(notices)["alerts"]
    assert alert["labels"] == {"alertname": "OfflinePartitions", "severity": "critical"}
    assert alert["annotations"]["runbook_url"] == "docs/runbook.md#offlinepartitions"
    assert "3 partitions have no leader" in alert["annotations"]["summary"]
    slack = slack_document(notices)
    assert slack["text"].startswith("CRITICAL: OfflinePartitions")
    assert "docs/runbook.md#offlinepartitions" in slack["attachments"][0]["text"]


def test_a_file_changes_and_adds_rules_and_can_take_one_away() -> None:
    document = {
        "send": {"webhooks": ["http://x/"], "repeat_seconds": 60},
        "rule": [
            {"name": "NodeDown", "for_seconds": 5},
            {"name": "LoopLag", "enabled": False},
            {"name": "Mine", "summary": "s", "metric": "m", "below": 3, "by": ["topic"], "take": "increase"},
        ],
    }
    told = parse_rules(document, DEFAULT_RULES, "file")
    rules = {each.name: each for each in told.rules}
    assert (rules["NodeDown"].for_seconds, rules["NodeDown"].metric) == (5.0, "up")
    assert "LoopLag" not in rules
    assert (rules["Mine"].below, rules["Mine"].by, rules["Mine"].take) == (3.0, ("topic",), Take.INCREASE)
    assert (told.sending.webhooks, told.sending.repeat_seconds) == (("http://x/",), 60.0)


def test_alerts_link_to_where_the_runbook_is_kept() -> None:
    own = {"name": "Mine", "summary": "s", "metric": "m", "below": 3, "runbook": "https://mine/"}
    other = {"name": "Other", "summary": "s", "metric": "m", "below": 3}
    document = {"send": {"runbook": "https://wiki/tailrace"}, "rule": [own, other]}
    links = {each.name: each.runbook for each in parse_rules(document, DEFAULT_RULES, "file").rules}
    assert (links["NodeDown"], links["Mine"]) == ("https://wiki/tailrace#nodedown", "https://mine/")
    assert links["Other"] == "https://wiki/tailrace#other"
    assert {each.runbook for each in DEFAULT_RULES if each.name == "NodeDown"} == {"docs/runbook.md#nodedown"}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"rules": []}, "rules is unknown"),
        ({"rule": [{"metric": "m"}]}, "`name` is missing"),
        ({"rule": [{"name": "Mine", "metric": "m"}]}, "at least summary, metric"),
        ({"rule": [{"name": "Mine", "metric": "m", "summary": "s"}]}, "`above` or `below`"),
        ({"rule": [{"name": "NodeDown", "above": 1, "below": 2}]}, "not both"),
        ({"rule": [{"name": "NodeDown", "takes": "value"}]}, "takes is unknown"),
        ({"rule": [{"name": "NodeDown", "take": "all"}]}, "is one of value, increase"),
        ({"rule": [{"name": "NodeDown", "by": "topic"}]}, "is a list of texts"),
        ({"rule": [{"name": "NodeDown", "for_seconds": "5"}]}, "is not what it should be"),
        ({"send": {"webhooks": "http://x"}}, "is a list of texts"),
        ({"send": {"webhooks": ["http://x", "x.example"]}}, "webhooks: address 2 does not begin with http"),
        ({"send": {"slack": ["file:///etc/passwd"]}}, "slack: address 1 does not begin with http"),
        ({"send": {"commands": ["page 'team"]}}, "number 1 is no command line"),
        ({"send": {"commands": ["  "]}}, "number 1 is empty"),
    ],
)
def test_what_is_wrong_with_a_file_is_told(document: dict[str, object], message: str) -> None:
    with pytest.raises(RulesError, match=message):
        parse_rules(document, DEFAULT_RULES, "file")
