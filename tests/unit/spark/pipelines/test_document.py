"""Values and lines of TOML and YAML files."""

import pytest

from tailrace.spark.pipelines.document import PipelineFileError, read_document

TOML = '''\
name = "a"   # a comment with = and [brackets]
list = [
  "x",  # two lines
  "]",
]

[sources.orders]
topic = "orders"
schema = """
key = "not a key"
[not.a.header]
"""
"kafka.like" = 'quoted'
inner.deep = 1

[[steps]]
a = 1

[[steps]]
a = 2

[steps.table]
b = 3
'''

YAML = """\
name: a
list:
  - x
  - y
sources:
  orders:
    topic: orders
    schema: |
      key: not a key
    "kafka.like": quoted
steps:
  - a: 1
  - a: 2
"""


def read(tmp_path, text, name="p.toml", environment=None):
    (tmp_path / name).write_text(text)
    return read_document(tmp_path / name, environment or {})


def test_toml_lines(tmp_path):
    lines = read(tmp_path, TOML).lines
    assert {place: lines[place] for place in lines if place} == {
        ("name",): 1,
        ("list",): 2,
        ("sources",): 7,
        ("sources", "orders"): 7,
        ("sources", "orders", "topic"): 8,
        ("sources", "orders", "schema"): 9,
        ("sources", "orders", "kafka.like"): 13,
        ("sources", "orders", "inner"): 14,
        ("sources", "orders", "inner", "deep"): 14,
        ("steps",): 16,
        ("steps", 0): 16,
        ("steps", 0, "a"): 17,
        ("steps", 1): 19,
        ("steps", 1, "a"): 20,
        ("steps", 1, "table"): 22,
        ("steps", 1, "table", "b"): 23,
    }


def test_yaml_lines(tmp_path):
    document = read(tmp_path, YAML, "p.yaml")
    assert document.lines["sources", "orders", "kafka.like"] == 10
    assert document.lines["list", 1] == 4
    assert document.lines["steps", 1, "a"] == 13
    assert document.value["sources"]["orders"]["schema"] == "key: not a key\n"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("p.toml", 'a = 1\nb = "open\n', "p.toml:2: not TOML"),
        ("p.toml", "a = 1\na = 2\n", "p.toml:2: not TOML"),
        ("p.toml", "a = [1,\n", "p.toml:2: not TOML"),
        ("p.yaml", "a: 1\nb: [1\n", "p.yaml:3: not YAML"),
        ("p.yaml", "a: 1\nb: 2\na: 3\n", "p.yaml:3: a is there twice, first in line 1"),
        ("p.yaml", "a: 1\n2: x\n", "p.yaml:2: the key 2 is no text"),
        ("p.yaml", "- a\n", "p.yaml:1: a pipeline is a table"),
        ("p.yaml", "", "p.yaml:1: a pipeline is a table"),
        ("p.json", "{}", "a file that ends in .toml, .yaml or .yml"),
    ],
)
def test_what_is_no_document(tmp_path, name, text, message):
    with pytest.raises(PipelineFileError) as failure:
        read(tmp_path, text, name)
    assert message in str(failure.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(PipelineFileError, match=r"cannot read .*nothing\.toml: No such file"):
        read_document(tmp_path / "nothing.toml")


def test_bytes_that_are_no_text(tmp_path):
    (tmp_path / "p.toml").write_bytes(b"a = '\xff'")
    with pytest.raises(PipelineFileError, match="not a text in UTF-8"):
        read_document(tmp_path / "p.toml")


def test_variables_of_the_environment(tmp_path):
    text = 'a = "x ${USER_NAME} y"\n[b]\nc = ["$${USER_NAME}", "$USER_NAME"]\n'
    document = read(tmp_path, text, environment={"USER_NAME": "me"})
    assert document.value == {"a": "x me y", "b": {"c": ["${USER_NAME}", "$USER_NAME"]}}
    with pytest.raises(PipelineFileError, match=r"p\.toml:1: a: the environment has no USER_NAME"):
        read(tmp_path, text)
