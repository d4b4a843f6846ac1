"""`tailrace produce` and `tailrace consume`, against a real broker; pipes and Ctrl-C with real processes."""

import itertools
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.cli import main
from tailrace.testing import Broker

Run = Callable[..., tuple[int, str, str]]
COMMAND = [sys.executable, "-m", "tailrace"]
WAIT_S = 20
_numbers = itertools.count()


@pytest.fixture
def topic() -> str:
    return f"cli-records-{next(_numbers)}"


@pytest.fixture
def produce(run: Run, tmp_path: Path) -> Callable[..., tuple[int, str, str]]:
    def produce_lines(topic: str, content: bytes, *words: str) -> tuple[int, str, str]:
        path = tmp_path / "input"
        path.write_bytes(content)
        return run("produce", topic, "--file", str(path), *words)

    return produce_lines


def consumed(run: Run, topic: str, *words: str) -> list[dict]:
    code, out, err = run("consume", topic, "--until-end", "--json", *words)
    assert (code, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


def test_lines_in_lines_out(run: Run, produce: Run, topic: str):
    assert produce(topic, b"one\n\ntwo\nthree without an end") == (0, "", "")
    assert run("consume", topic, "-e") == (0, "one\n\ntwo\nthree without an end\n", "")


def test_keys_headers_and_nulls(run: Run, produce: Run, topic: str):
    produce(topic, b"a=1\nb=\n=3\nd=x=y\n", "-K", "=", "-Z", "-H", "source=shell", "-H", "empty=", "-H", "null")
    records = consumed(run, topic)
    assert [(record["key"], record["value"]) for record in records] == [
        ("a", "1"),
        ("b", None),
        (None, "3"),
        ("d", "x=y"),
    ]
    assert records[0]["headers"] == [
        {"name": "source", "value": "shell"},
        {"name": "empty", "value": ""},
        {"name": "null", "value": None},
    ]


def test_a_template(run: Run, produce: Run, topic: str):
    produce(topic, b"a:1\n", "-K", ":", "-H", "h=x")
    code, out, _ = run("consume", topic, "-e", "--format", r"%t/%p@%o %k=%v [%h] %K %V 100%%\x21\t%T\n")
    assert code == 0
    assert re.fullmatch(rf"{topic}/0@0 a=1 \[h=x\] 1 1 100%!\t\d{{13}}\n", out)


def test_nulls_in_templates(run: Run, produce: Run, topic: str):
    produce(topic, b"\n", "-Z")
    assert run("consume", topic, "-e", "--format", "%k,%v,%K,%V;", "--null", "NULL")[1] == "NULL,NULL,-1,-1;"


@pytest.mark.parametrize(("encoding", "text"), [("hex", "00ff10"), ("base64", "AP8Q")])
def test_bytes_that_are_no_text(run: Run, produce: Run, topic: str, encoding: str, text: str):
    produce(topic, f"{text}\n".encode(), "--value-encoding", encoding, "--key", text, "--key-encoding", encoding)
    words = ("--value-encoding", encoding, "--key-encoding", encoding)
    assert run("consume", topic, "-e", "--format", "%k %v", *words)[1] == f"{text} {text}"
    (record,) = consumed(run, topic, *words)
    assert (record["key"], record["value"]) == (text, text)
    (record,) = consumed(run, topic)
    assert (record["key_base64"], record["value_base64"]) == ("AP8Q", "AP8Q")


def test_json_goes_round(run: Run, produce: Run, topic: str):
    lines = [
        {"key": None, "value": "plain", "timestamp": 1_790_000_000_123},
        {"key": "k", "value": None, "headers": [{"name": "n", "value": None}, {"name": "b", "value_base64": "/w=="}]},
        {"key_base64": "/w==", "value_base64": "/w8="},
        {"value": "ünï 😀"},
    ]
    produce(topic, "\n".join(json.dumps(line) for line in lines).encode(), "--input", "json")
    first = run("consume", topic, "-e", "--json")[1]
    assert json.loads(first.splitlines()[0])["timestamp"] == 1_790_000_000_123
    copy = f"{topic}-copy"
    produce(copy, first.encode(), "--input", "json")
    second = run("consume", copy, "-e", "--json")[1]
    assert second == first.replace(f'"{topic}"', f'"{copy}"')


def test_other_delimiters(run: Run, produce: Run, topic: str):
    produce(topic, b"a\0b\n\0c", "--delimiter", r"\0")
    assert [record["value"] for record in consumed(run, topic)] == ["a", "b\n", "c"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_codecs_and_acks(run: Run, produce: Run, topic: str, codec: str, acks: str):
    content = b"".join(b"line %d\n" % number for number in range(3000))
    assert produce(topic, content, "--compression", codec, "--acks", acks)[0] == 0
    assert run("consume", topic, "-n", "3000")[1].encode() == content


def test_where_to_start_and_end(run: Run, produce: Run, topic: str):
    produce(topic, b"".join(b"%d\n" % number for number in range(10)))

    def values(*words: str) -> str:
        code, out, err = run("consume", topic, "--format", "%v", *words)
        assert (code, err) == (0, "")
        return out

    assert values("-e") == "0123456789"
    assert values("-e", "--from", "7") == "789"
    assert values("-e", "--from", "10") == ""
    assert values("-e", "--from", "-3") == "789"
    assert values("-e", "--from", "-99") == "0123456789"
    assert values("-e", "--from", "end") == ""
    assert values("-n", "4") == "0123"
    assert values("-n", "2", "--from", "5") == "56"
    assert values("-e", "-n", "99") == "0123456789"


def test_starting_at_a_time(run: Run, produce: Run, topic: str):
    lines = [{"value": str(day), "timestamp": 1_767_225_600_000 + day * 86_400_000} for day in range(5)]  # 2026-01-01
    produce(topic, "\n".join(map(json.dumps, lines)).encode(), "--input", "json")

    def values(moment: str) -> str:
        return run("consume", topic, "-e", "--format", "%v", "--from-time", moment)[1]

    assert values("2026-01-03T00:00:00Z") == "234"
    assert values("2026-01-03") == "234"
    assert values("2026-01-03T01:00:00+01:00") == "234"
    assert values("1767398400001") == "34"
    assert values("2035-01-01") == ""
    produce(topic, b"now")
    assert values("-5m") == "now"
    assert values("30s") == "now"


def test_one_partition_of_several(run: Run, produce: Run, topic: str):
    run("topic", "create", topic, "--partitions", "3")
    for partition in range(3):
        produce(topic, b"%d" % partition, "--partition", str(partition))
    assert run("consume", topic, "-e", "-p", "1")[1] == "1\n"
    assert sorted(run("consume", topic, "-e", "-p", "0", "-p", "2")[1]) == ["\n", "\n", "0", "2"]


def test_where_each_record_went(produce: Run, topic: str):
    code, out, _ = produce(topic, b"a\nb\n", "--json")
    assert code == 0
    assert [(line["topic"], line["partition"], line["offset"]) for line in map(json.loads, out.splitlines())] == [
        (topic, 0, 0),
        (topic, 0, 1),
    ]


def test_failures_are_one_line(run: Run, produce: Run, topic: str, tmp_path: Path):
    run("topic", "create", topic, "--set", "max.message.bytes=1000")
    failures = [
        (produce(topic, b"x", "-p", "9"), "has no partition 9"),
        (produce(topic, b"no separator", "-K", ":"), "line 1 has no key separator"),
        (produce(topic, b'{"value": 1}', "--input", "json"), "line 1 is not a record in JSON"),
        (produce(topic, b"[]", "--input", "json"), "line 1 is not a record in JSON"),
        (produce(topic, b"{", "--input", "json"), "line 1 is not a record in JSON"),
        (produce(topic, b"xyz", "--value-encoding", "hex"), "line 1 is not hex"),
        (produce(topic, os.urandom(2000).hex().encode()), f"tailrace topic alter {topic} --set max.message.bytes"),
        (run("produce", topic, "--file", str(tmp_path / "none")), "No such file"),
        (run("consume", f"{topic}-none"), f"tailrace topic create {topic}-none"),
        (run("consume", topic, "--from", "5"), "offset 5 is not in"),
        (run("consume", topic, "-p", "4"), "has no partition 4"),
    ]
    for (code, out, err), expected in failures:
        assert (code, out) == (1, "")
        assert expected in err
        assert err.startswith("tailrace: ")
        assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("consume", "t", "--format", "%q"), "%q is no field"),
        (("consume", "t", "--format", "50%"), "ends in the midst"),
        (("consume", "t", "--format", "\\q"), "is no escape"),
        (("consume", "t", "--from", "middle"), "is not beginning, end"),
        (("consume", "t", "--from-time", "soon"), "is not a time"),
        (("consume", "t", "--from", "1", "--from-time", "2026-01-01"), "not allowed with"),
        (("consume", "t", "--count", "0"), "above 0"),
        (("consume", "t", "--json", "--format", "%v"), "not allowed with"),
        (("produce", "t", "--key", "k", "-K", ":"), "not allowed with"),
        (("produce", "t", "--input", "json", "--key", "k"), "the key is in the line"),
        (("produce", "t", "--delimiter", ""), "must not be empty"),
        (("produce", "t", "--header", "=x"), "NAME=VALUE"),
        (("produce", "t", "--acks", "2"), "invalid choice"),
    ],
)
def test_usage_errors(run: Run, words: tuple[str, ...], complaint: str):
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert complaint in err


@pytest.mark.parametrize("command", ["produce", "consume"])
def test_help_shows_examples(command: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert "examples:" in capsys.readouterr().out


# --- real processes


def start(*words: str, **pipes: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*COMMAND, *words], **pipes)


def test_an_interrupt_ends_quietly(tailrace_broker: Broker, topic: str):
    where = ("--bootstrap", tailrace_broker.bootstrap)
    subprocess.run([*COMMAND, "produce", topic, *where], input=b"x\n", timeout=WAIT_S, check=True)
    consumer = start("consume", topic, *where, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert consumer.stdout.readline() == b"x\n"
    consumer.send_signal(signal.SIGINT)
    out, err = consumer.communicate(timeout=WAIT_S)
    assert (consumer.returncode, out, err) == (130, b"", b"")


def test_an_interrupt_ends_a_producer_that_waits_for_input(tailrace_broker: Broker, topic: str):
    where = ("--bootstrap", tailrace_broker.bootstrap)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    producer = start("produce", topic, "--json", *where, **pipes)
    producer.stdin.write(b"x\n")
    producer.stdin.flush()
    # It is sent although the producer waits for more, and what was acknowledged is told at once.
    assert json.loads(producer.stdout.readline())["offset"] == 0
    producer.send_signal(signal.SIGINT)
    out, err = producer.communicate(timeout=WAIT_S)
    assert (producer.returncode, out, err) == (130, b"", b"")


def test_a_reader_that_leaves_is_no_failure(tailrace_broker: Broker, topic: str):
    where = ("--bootstrap", tailrace_broker.bootstrap)
    lines = b"".join(b"%d\n" % number for number in range(100_000))
    subprocess.run([*COMMAND, "produce", topic, *where], input=lines, timeout=WAIT_S, check=True)
    consumer = start("consume", topic, *where, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert consumer.stdout.readline() == b"0\n"
    consumer.stdout.close()
    assert consumer.stderr.read() == b""
    assert consumer.wait(WAIT_S) == 0
    consumer.stderr.close()


def test_colours_and_tables_are_for_a_terminal(tailrace_broker: Broker, topic: str):
    where = ("--bootstrap", tailrace_broker.bootstrap)
    words = [*COMMAND, "produce", topic, "-K", ":", *where]
    subprocess.run(words, input=b"key:value\n", timeout=WAIT_S, check=True)
    assert on_a_terminal("consume", topic, "-e", *where) == "\x1b[2m0:0\x1b[0m \x1b[36mkey\x1b[0m value\r\n"
    table = on_a_terminal("topic", "describe", topic, *where)
    assert "in sync" in table
    assert "\t" not in table


def on_a_terminal(*words: str) -> str:
    terminal, inner = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    environment.pop("NO_COLOR", None)
    command = subprocess.Popen([*COMMAND, *words], stdout=inner, stderr=inner, env=environment)
    os.close(inner)
    output = b""
    try:
        while chunk := os.read(terminal, 65536):
            output += chunk
    except OSError:  # How a terminal without anyone behind it ends on Linux.
        pass
    os.close(terminal)
    assert command.wait(WAIT_S) == 0
    return output.decode()
