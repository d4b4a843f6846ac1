"""The Python of Spark's workers: what Spark has put before all else is gone, what the caller has set stays."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tailrace.spark.session import prepare_environment
from tailrace.spark.worker_python import worker_python

HOME = str(Path(pyspark.__file__).parent)
_SHOW = "import json, os, sys; print(json.dumps([os.environ['PYTHONPATH'], sys.executable, sys.argv[1:]]))"


@pytest.mark.parametrize(
    ("path", "left"),
    [
        (f"{HOME}/python/lib/pyspark.zip:{HOME}/jars/core.jar", ""),
        (f"{HOME}/python/lib/pyspark.zip:/a folder:/*:{HOME}2/x", f"/a folder:/*:{HOME}2/x"),
        ("/a::/b", "/a::/b"),
    ],
)
def test_the_archives_of_spark_are_left_out(tmp_path, monkeypatch, path, left):
    monkeypatch.delenv("SPARK_HOME", raising=False)
    words = [worker_python(tmp_path), "-c", _SHOW, "one word", "*"]
    done = subprocess.run(words, env={"PYTHONPATH": path, "rest": "x"}, stdout=subprocess.PIPE, text=True, check=True)
    assert json.loads(done.stdout) == [left, sys.executable, ["one word", "*"]]


def test_another_spark_than_the_installed_one_is_left_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert worker_python(tmp_path) == sys.executable
    monkeypatch.setenv("SPARK_HOME", HOME)
    assert worker_python(tmp_path) != sys.executable


def test_where_programs_cannot_be_kept(tmp_path, monkeypatch):
    monkeypatch.delenv("SPARK_HOME", raising=False)
    (tmp_path / "file").touch()
    assert worker_python(tmp_path / "file") == sys.executable
    monkeypatch.setattr(os, "access", lambda *_: False)  # A file system from which nothing may be run.
    assert worker_python(tmp_path) == sys.executable


@pytest.mark.parametrize("is_local", [True, False])
def test_machines_of_a_cluster_have_no_program_of_ours(tmp_path, monkeypatch, is_local):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys.modules["tailrace.spark.session"], "find_java_home", lambda: None)
    prepare_environment(is_local=is_local)
    assert (os.environ["PYSPARK_PYTHON"] == sys.executable) is not is_local
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == os.environ["PYSPARK_PYTHON"]
