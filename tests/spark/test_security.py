"""Topics of Apache Kafka behind TLS and a login, written and read by Spark."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from tests.apache_kafka import ApacheKafka
from tests.certificates import Authority

pytestmark = pytest.mark.long

ROWS = 5000
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.fixture(scope="module")
def options(kafka_class_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Options to read a topic `t` with three partitions behind SASL_SSL."""
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder)
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.sign("broker", subject_alt_name="IP:127.0.0.1").joined()),
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.secured.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
    }
    with ApacheKafka(
        kafka_class_path,
        folder,
        listeners={"SECURED": "SASL_SSL"},
        settings=settings,
        scram=["SCRAM-SHA-512=[name=alice,password=secret]"],
    ) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        for created in admin.create_topics([NewTopic("t", 3, 1)]).values():
            created.result(30)
        yield {
            "kafka.bootstrap.servers": kafka.addresses["SECURED"],
            "kafka.security.protocol": "SASL_SSL",
            "kafka.ssl.truststore.location": str(authority.certificate),
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": f'{SCRAM_MODULE} required username="alice" password="secret";',
        }


def test_rows_go_to_a_secured_topic_and_come_back(spark: SparkSession, options: dict[str, str], tmp_path: Path):
    rows = spark.range(ROWS).selectExpr("CAST(id AS STRING) AS key", "repeat(CAST(id AS STRING), 20) AS value")
    rows.write.format("tailrace").options(**options, topic="t").mode("append").save()
    read = spark.read.format("tailrace").options(**options, subscribe="t").load()
    found = read.selectExpr("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value")
    assertDataFrameEqual(found, rows)

    stream = spark.readStream.format("tailrace").options(**options, subscribe="t", startingOffsets="earliest").load()
    query = (
        stream.writeStream.format("memory")
        .queryName("secured")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(60)
    assert spark.table("secured").count() == ROWS


def test_a_wrong_password_is_told(spark: SparkSession, options: dict[str, str]):
    wrong = options["kafka.sasl.jaas.config"].replace("secret", "hunter2")
    reader = spark.read.format("tailrace").options(**options | {"kafka.sasl.jaas.config": wrong}, subscribe="t")
    with pytest.raises(PySparkException, match="does not let user 'alice' in by SCRAM-SHA-512"):
        reader.load().count()
