"""Dead letters once more: each record once, whatever was cut off before and meanwhile. The table is read by deltalake,
the topics by librdkafka."""

import itertools
import json

import pytest
from deltalake import DeltaTable

from tailrace.spark.pipelines import Pipeline, TableSink, TopicSink, TopicSource, Transform, run
from tailrace.spark.pipelines.beside import replay as replays
from tailrace.spark.pipelines.beside.replay import Replay, Replayed
from tailrace.spark.pipelines.declaration import DeclarationError
from tailrace.spark.pipelines.landing.batches import Landing
from tests.spark.test_pipelines import read_topic

BROKEN, MENDED = "n INT", "n STRING"
SQL = "SELECT CAST(value.n AS STRING) AS n, partition, offset FROM rows"


class KilledError(BaseException):
    """Stands for kill -9: nothing of ours runs after it."""


@pytest.fixture
def topics(create_topic, produce):
    """A topic with bad records among good ones, and one for dead letters."""
    source, dead = create_topic(2), create_topic()
    values = ['{"n": 1}', '{"n": "two"}', '{"n": 3}', "no json", '{"n": "five"}', '{"n": 6}']
    produce(source, [{"value": value, "partition": n % 2, "headers": [("h", b"x")]} for n, value in enumerate(values)])
    return source, dead


@pytest.fixture
def declare(tailrace_broker, topics, tmp_path):
    def make(schema, sink=None, **changes):
        source, dead = topics
        rows = TopicSource(source, format="json", schema=schema, dead_letters=dead)
        kept = {"transform": Transform(sql=SQL), **changes}
        sink = sink or TableSink(str(tmp_path / "table"), "delta")
        return Pipeline("orders", tailrace_broker.bootstrap, {"rows": rows}, sink, str(tmp_path / "checkpoint"), **kept)

    return make


def replayed(spark, pipeline, *, into_source=False, takes_doubtful=False):
    return Replay(spark, pipeline, into_source=into_source, takes_doubtful=takes_doubtful).run(lambda _: None)


@pytest.fixture
def landed(tmp_path):
    return lambda: sorted(DeltaTable(str(tmp_path / "table")).to_pyarrow_table()["n"].to_pylist())


@pytest.mark.long
def test_each_once_after_a_fix(spark, declare, landed):
    run(declare(BROKEN), spark, once=True)
    assert landed() == ["1", "3", "6"]
    assert replayed(spark, declare(BROKEN)) == Replayed(0, still_bad=3)
    assert replayed(spark, declare(MENDED)) == Replayed(2, still_bad=1)
    assert landed() == ["1", "3", "6", "five", "two"]
    assert replayed(spark, declare(MENDED)) == Replayed(0, still_bad=1)
    assert len(landed()) == 5


@pytest.mark.long
@pytest.mark.parametrize("moment", ["planned", "landed"])
def test_a_replay_that_is_killed_is_finished_by_the_next(spark, declare, landed, monkeypatch, moment):
    run(declare(BROKEN), spark, once=True)
    append = Replay._append

    def dies(self, name, line):
        if (moment, name) == ("landed", "done"):
            raise KilledError
        append(self, name, line)
        if (moment, name) == ("planned", "plans"):
            raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(Replay, "_append", dies)
        with pytest.raises(KilledError):
            replayed(spark, declare(MENDED))
    assert landed() == (["1", "3", "6"] if moment == "planned" else ["1", "3", "6", "five", "two"])
    assert replayed(spark, declare(MENDED)) == Replayed(2, still_bad=1)
    assert landed() == ["1", "3", "6", "five", "two"]


@pytest.mark.long
@pytest.mark.parametrize(
    "case", list(itertools.product(["before it lands", "when it has landed"], [False, True])), ids=str
)
def test_letters_of_a_batch_that_was_cut_off(spark, declare, landed, monkeypatch, case):
    """A second attempt at the batch, by the mended file or not, takes the records itself, or finds the batch there."""
    (moment, is_mended), land = case, Landing.__call__

    def dies(self, rows, number):
        if moment == "when it has landed":
            land(self, rows, number)
        else:
            rows.count()
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(Landing, "__call__", dies)
        with pytest.raises(Exception, match="killed"):
            run(declare(BROKEN), spark, once=True)
    assert replayed(spark, declare(MENDED)) == Replayed(0, waiting=3), "the batch may run again"
    run(declare(MENDED if is_mended else BROKEN), spark, once=True)
    takes_itself = is_mended and moment == "before it lands"
    assert replayed(spark, declare(MENDED)) == Replayed(0 if takes_itself else 2, still_bad=1)
    assert landed() == ["1", "3", "6", "five", "two"]


@pytest.mark.long
def test_many_make_several_plans(spark, declare, landed, monkeypatch):
    monkeypatch.setattr(replays, "RECORDS_MAX", 1)
    run(declare(BROKEN), spark, once=True)
    assert replayed(spark, declare(MENDED)) == Replayed(2, still_bad=1)
    assert landed() == ["1", "3", "6", "five", "two"]


@pytest.mark.long
def test_into_a_topic_and_into_the_source(spark, declare, create_topic, tailrace_broker, topics):
    sink = create_topic()
    to_topic = {"sink": TopicSink(sink, format="json")}
    run(declare(BROKEN, **to_topic), spark, once=True)
    for _ in range(2):
        replayed(spark, declare(MENDED, **to_topic))
    found = sorted(json.loads(value)["n"] for _, value in read_topic(tailrace_broker.bootstrap, sink))
    assert found == ["1", "3", "6", "five", "two"]
    for _ in range(2):
        replayed(spark, declare(MENDED, **to_topic), into_source=True)
    source = {"kafka.bootstrap.servers": tailrace_broker.bootstrap, "subscribe": topics[0]}
    committed = {"kafka.isolation.level": "read_committed", "includeHeaders": "true"}
    rows = spark.read.format("tailrace").options(**source, **committed).load().collect()
    values = [bytes(row.value) for row in rows]
    two = [(row.partition, row.headers[0].value) for row in rows if row.value == b'{"n": "two"}']
    assert two == [(1, b"x")] * 2
    assert values.count(b'{"n": "two"}') == values.count(b'{"n": "five"}') == 2
    assert values.count(b"no json") == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sink": TableSink("/t", "parquet")}, "--into-source"),
        ({"sink": TableSink("/t", "delta", merge_on=("n",))}, "named as version, would allow it"),
        ({"transform": Transform(sql="SELECT count(*) AS n FROM rows")}, r"several rows at a time \(Aggregate\)"),
        ({"transform": Transform(sql="SELECT DISTINCT value.n FROM rows")}, "several rows at a time"),
    ],
)
def test_what_cannot_be_taken_by_itself(spark, declare, changes, message):
    with pytest.raises(DeclarationError, match=message):
        replayed(spark, declare(MENDED, **changes))
