"""Regular expressions of clients: which are taken, and that none of them holds the loop."""

import pytest

from tailrace.controller.patterns import compile_pattern
from tailrace.model.errors import ErrorCode, KafkaError


def test_the_whole_name_is_matched():
    pattern = compile_pattern(r"orders-\d+")
    assert pattern.fullmatch("orders-17")
    assert not pattern.fullmatch("my-orders-17")
    assert not pattern.fullmatch("orders-17x")


def test_what_would_keep_a_backtracking_engine_for_ever_is_matched():
    assert not compile_pattern("(a*)*b").fullmatch("a" * 249)
    assert not compile_pattern("(a|b)*a(a|b){240}").fullmatch("ab" * 120)


@pytest.mark.parametrize(
    ("pattern", "cause"),
    [
        ("[", "missing ]"),
        ("(?=x)", "perl operator"),
        (r"(a)\1", "escape"),
        ("x" * 10_001, "too long"),
        ("((a|b|ab|ba)?){1000}", "too complex"),
        (r"\pL{200}", "too large"),
    ],
)
def test_what_is_refused_says_why(pattern, cause):
    with pytest.raises(KafkaError, match=cause) as refused:
        compile_pattern(pattern)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert len(refused.value.message) < 300
