"""A topic that has another id is another topic."""

import logging

import pytest

from tailrace.model.ids import ZERO_UUID, Uuid, uuid_text
from tailrace.spark.options.errors import OptionError
from tailrace.spark.options.read import ReadOptions
from tailrace.spark.source.loss import DataLossError, KnownTopics, LossReport

OLD, NEW = Uuid(b"o" * 16), Uuid(b"n" * 16)


def test_an_id_that_was_given_has_to_hold():
    known = KnownTopics({"t": OLD}, LossReport(fail_on_data_loss=True))
    known.check({"t": OLD, "u": NEW})
    with pytest.raises(DataLossError, match=f"topic t was deleted and created anew: its id was {uuid_text(OLD)}"):
        known.check({"t": NEW})


def test_an_id_that_was_seen_has_to_hold():
    known = KnownTopics({}, LossReport(fail_on_data_loss=True))
    known.check({"t": OLD})
    with pytest.raises(DataLossError):
        known.check({"t": NEW})


def test_a_query_that_goes_on_tells_it_once(caplog: pytest.LogCaptureFixture):
    known = KnownTopics({"t": OLD}, LossReport(fail_on_data_loss=False))
    with caplog.at_level(logging.WARNING):
        known.check({"t": NEW})
        known.check({"t": NEW})
    assert len(caplog.records) == 1
    assert known.ids == {"t": NEW}


def test_a_broker_without_ids_is_not_judged():
    known = KnownTopics({"t": OLD}, LossReport(fail_on_data_loss=True))
    known.check({"t": ZERO_UUID, "u": ZERO_UUID})
    assert known.ids == {"t": OLD}


@pytest.mark.parametrize("text", ["t", '["t"]', '{"t": 1}', '{"t": "short"}'])
def test_the_option_is_json(text: str):
    options = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", "topicids": text}
    with pytest.raises(OptionError, match=r"option topicIds is .*: expected JSON such as"):
        ReadOptions.parse(options, is_stream=True)
