"""For all tests: the mark `needs`, and a note of each test that a missing part has skipped."""

import os

import pytest

from tests.parts import need_program, record_skip


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        for program in mark.args:
            need_program(program)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    # With pytest-xdist each report is seen twice: by the worker, and by the process that started it.
    if "PYTEST_XDIST_WORKER" not in os.environ:
        record_skip(report)
