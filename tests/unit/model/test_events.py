"""Log lines: one event a line, whatever a client has put into it."""

import logging

from tailrace.model.events import TextFormatter


def line(**facts: object) -> str:
    record = logging.LogRecord("tailrace.test", logging.INFO, "", 0, "something happened", (), None)
    record.facts = facts
    return TextFormatter().format(record).partition("something happened")[2]


def test_facts_follow_the_sentence():
    assert line(partition="orders-0", bytes=17, cause="no space") == ' partition=orders-0 bytes=17 cause="no space"'


def test_what_a_client_sent_stays_on_its_line_and_moves_no_cursor():
    said = line(client="a\nERROR forged", name="\x1b[2J\u2028", empty="")
    assert said == ' client="a\\nERROR forged" name="\\u001b[2J\\u2028" empty=""'
