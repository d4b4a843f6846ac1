"""Paths below a context, and slashes that are part of a name."""

import pytest

from tailrace.apps.registry.web.paths import leave_context


@pytest.mark.parametrize(
    ("path", "query", "expected"),
    [
        ("/contexts/.c/subjects/a/versions", "", ("/subjects/%3A.c%3Aa/versions", b"")),
        ("/contexts/:.c:/subjects/a%2Fb", "", ("/subjects/%3A.c%3Aa%2Fb", b"")),
        ("/contexts/c/subjects/:.d:a", "", ("/subjects/:.d:a", b"")),
        ("/contexts/.c/config", "", ("/config/%3A.c%3A", b"")),
        ("/contexts/.c/mode/a", "", ("/mode/%3A.c%3Aa", b"")),
        ("/contexts/.c/subjects", "deleted=true", ("/subjects", b"deleted=true&subjectPrefix=%3A.c%3A")),
        ("/contexts/.c/schemas", "subjectPrefix=a", ("/schemas", b"subjectPrefix=%3A.c%3Aa")),
        ("/contexts/.c/schemas/ids/1", "", ("/schemas/ids/1", b"subject=%3A.c%3A")),
        ("/contexts/.c/compatibility/subjects/a/versions/1", "", ("/compatibility/subjects/%3A.c%3Aa/versions/1", b"")),
        ("/contexts/.c", "", ("/contexts/.c", b"")),
        ("/contexts/.c/subjects/config/versions", "", ("/subjects/%3A.c%3Aconfig/versions", b"")),
    ],
)
def test_a_context_moves_into_the_subject(path, query, expected):
    assert leave_context(path, query) == expected


def test_a_context_that_is_none():
    with pytest.raises(ValueError, match="colon"):
        leave_context("/contexts/.a:b:c/subjects", "")
