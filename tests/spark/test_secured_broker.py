"""Topics of our own broker behind TLS, a login and ACLs, written and read by Spark."""

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from tailrace.testing import Broker
from tailrace.testing.users import ClientSettings

pytestmark = pytest.mark.long
pytest.importorskip("cryptography", reason="the extra `security` is not installed")

ROWS = 3000
TOPIC = "t"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(secure=True) as running:
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
