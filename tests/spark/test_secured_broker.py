"""Topics of our own broker behind TLS, a login and ACLs, written and read by Spark."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from tailrace.cli import main
from tailrace.testing import Broker
from tailrace.testing.users import ClientSettings

pytestmark = pytest.mark.long
pytest.importorskip("cryptography", reason="the extra `security` is not installed")

ROWS = 3000
TOPIC = "t"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"delegation.token.secret.key": "what all nodes know"}, secure=True) as running:
        admin = AdminClient(running.client_settings.confluent())
        admin.create_topics([NewTopic(TOPIC, 3, 1)])[TOPIC].result(30)
        yield running


def options_of(user: ClientSettings) -> dict[str, str]:
    return {f"kafka.{name}": text for name, text in user.java().items()}


@pytest.fixture(scope="module")
def writer(broker: Broker) -> dict[str, str]:
    return options_of(broker.user("writer", acls=[f"write topic:{TOPIC}"]))


@pytest.fixture(scope="module")
def reader(broker: Broker) -> dict[str, str]:
    return options_of(broker.user("reader", acls=[f"read topic:{TOPIC}"]))


def test_rows_go_in_by_one_user_and_come_back_by_another(
    spark: SparkSession, writer: dict[str, str], reader: dict[str, str]
):
    rows = spark.range(ROWS).selectExpr("CAST(id AS STRING) AS key", "repeat(CAST(id AS STRING), 20) AS value")
    rows.write.format("tailrace").options(**writer, topic=TOPIC).mode("append").save()
    read = spark.read.format("tailrace").options(**reader, subscribe=TOPIC).load()
    assertDataFrameEqual(read.selectExpr("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value"), rows)


def test_who_may_not_is_told_so(spark: SparkSession, writer: dict[str, str], reader: dict[str, str]):
    rows = spark.range(1).selectExpr("CAST(id AS STRING) AS value")
    # Who may write nowhere gets no producer id.
    with pytest.raises(PySparkException, match="CLUSTER_AUTHORIZATION_FAILED"):
        rows.write.format("tailrace").options(**reader, topic=TOPIC).mode("append").save()
    with pytest.raises(PySparkException, match="TOPIC_AUTHORIZATION_FAILED"):
        spark.read.format("tailrace").options(**writer, subscribe=TOPIC).load().count()


def test_spark_s_own_connector_comes_in_too(spark: SparkSession, kafka_format: str, broker: Broker):
    user = options_of(broker.user("other", acls=[f"read topic:{TOPIC}", f"write topic:{TOPIC}", "read group:*"]))
    rows = spark.range(10).selectExpr("CAST(id AS STRING) AS key", "'x' AS value")
    rows.write.format(kafka_format).options(**user, topic=TOPIC).mode("append").save()
    assert spark.read.format(kafka_format).options(**user, subscribe=TOPIC).load().where("value = 'x'").count() == 10


def test_a_token_is_enough(spark: SparkSession, kafka_format: str, broker: Broker, tmp_path: Path):
    """A job has the rights of whoever made its token, and not their password: by our source and sink and by Spark's own
    connector, as batches and as a stream. Once the token is over nobody comes in by it."""
    user = broker.user("owner", acls=[f"read topic:{TOPIC}", f"write topic:{TOPIC}", "read group:*"])
    config, login = tmp_path / "owner.properties", tmp_path / "token.properties"
    config.write_text("".join(f"{name}={text}\n" for name, text in user.java().items()))
    config.chmod(0o600)
    where = ("--bootstrap", broker.bootstrap, "--command-config", str(config))
    assert main(["token", "create", "--login-file", str(login), *where]) == 0
    of_token = dict(line.split("=", 1) for line in login.read_text().splitlines())
    options = options_of(user) | {f"kafka.{name}": text for name, text in of_token.items()}
    assert user.login.password not in str(options)
    for source in ("tailrace", kafka_format):
        rows = spark.range(100).selectExpr("CAST(id AS STRING) AS key", f"'by {source}' AS value")
        rows.write.format(source).options(**options, topic=TOPIC).mode("append").save()
        read = spark.read.format(source).options(**options, subscribe=TOPIC).load()
        assert read.where(f"CAST(value AS STRING) = 'by {source}'").count() == 100
    stream = spark.readStream.format("tailrace").options(**options, subscribe=TOPIC, startingOffsets="earliest").load()
    stream = stream.where("CAST(value AS STRING) = 'by tailrace'").selectExpr("key", "'by stream' AS value")
    sink = stream.writeStream.format("tailrace").options(**options, topic=TOPIC)
    query = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    read = spark.read.format("tailrace").options(**options, subscribe=TOPIC).load()
    assert read.where("CAST(value AS STRING) = 'by stream'").count() == 100
    token_id = of_token["sasl.jaas.config"].split('username="')[1].split('"')[0]
    assert main(["token", "expire", token_id, *where]) == 0
    with pytest.raises(PySparkException, match="Authentication failed"):
        spark.read.format("tailrace").options(**options, subscribe=TOPIC).load().count()
