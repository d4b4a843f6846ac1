"""What is remembered beside a checkpoint, and what a driver leaves there that was killed in the midst of writing it."""

from tailrace.spark.pipelines.checkpoint import read_query_id, remember, remembered


def test_what_was_cut_off_never_appears(spark, tmp_path):
    """A task was done and its job was not, as Spark leaves that: a next job in the same folder would publish both."""
    folder = tmp_path / "lines"
    for place in (folder, folder / "dead"):
        aside = place / "_temporary" / "0" / "task_202611192100001234_0000_m_000000"
        aside.mkdir(parents=True)
        (aside / "part-00000-x.txt").write_text("cut off\n")
    assert remembered(spark, str(folder)) == []
    remember(spark, str(folder), "first")
    remember(spark, str(folder), "second")
    assert sorted(remembered(spark, str(folder))) == ["first", "second"]


def test_an_id_that_was_cut_off_is_none(spark, tmp_path):
    (tmp_path / "metadata" / "_temporary").mkdir(parents=True)
    assert read_query_id(spark, str(tmp_path)) is None
    assert read_query_id(spark, str(tmp_path / "nowhere")) is None
