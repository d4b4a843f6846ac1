"""Every option by name."""

from pathlib import Path

import pytest

from tailrace.spark.options.errors import OptionError
from tailrace.spark.options.names import READ, TABLE, VALUES, WRITE, check_names

PAGES = Path(__file__).parents[4] / "docs" / "spark"


def test_the_docs_name_every_option():
    text = "".join(page.read_text() for page in PAGES.glob("*.md"))
    missing = [name for name in (*READ, *VALUES, *WRITE, *TABLE) if f"`{name}`" not in text and f'"{name}"' not in text]
    assert not missing, f"explain them in docs/spark: {missing}"


def test_what_spark_hands_to_every_source_is_accepted():
    check_names({"path": "p", "checkpointlocation": "c", "spark.x": "1", "__internal": "1", "kafka.anything": "1"})


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("maxoffsetpertrigger", "maxOffsetsPerTrigger"),
        ("failonloss", "failOnDataLoss"),
        ("topic_name", "topic"),
        ("kafkabootstrap.servers", "kafka.bootstrap.servers"),
        ("group.id", "groupId"),
        ("value.schem", "value.schema"),
    ],
)
def test_the_nearest_known_option_is_named(name: str, nearest: str):
    with pytest.raises(OptionError, match=rf"there is no option {name}: did you mean {nearest}\?"):
        check_names({name: "x"})
