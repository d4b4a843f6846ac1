"""The text is read by parsers that others wrote, whatever names hold."""

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus

from tailrace.model.metrics.text import Kind, Metric, Text, label

COUNTER = Metric("some_events", Kind.COUNTER, "Events.", plain_name="some_eventspersec_count")
HOSTILE = ['"', "\\", "\n", 'a"} 1\nother 2', "über", "\ud800", "\x00", "}{,=", ""]


@pytest.mark.parametrize("value", HOSTILE)
def test_any_label_comes_back_as_it_was(value: str):
    for is_open, parse in ((False, parse_prometheus), (True, parse_open_metrics)):
        text = Text(is_open_metrics=is_open)
        (family,) = parse(text.write(COUNTER, [(label(group=value), 1)]) + text.end())
        (sample,) = family.samples
        expected = value if value.isprintable() or value.isascii() else value.encode("utf-8", "replace").decode()
        assert (sample.name, sample.labels, sample.value) == ("some_events_total", {"group": expected}, 1)


def test_the_plain_spelling():
    prometheus = Text(has_plain_names=True).write(COUNTER, [("", 5)])
    assert prometheus.endswith("# TYPE some_eventspersec_count counter\nsome_eventspersec_count 5\n")
    text = Text(has_plain_names=True, is_open_metrics=True)
    (family,) = parse_open_metrics(text.write(COUNTER, [("", 5)]) + text.end())
    assert (family.type, family.samples[0].name) == ("unknown", "some_eventspersec_count")


def test_what_has_no_samples_is_not_told():
    assert Text().write(COUNTER, []) == ""
