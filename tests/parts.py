"""The parts that tests need and pip does not bring: programs, packages of npm, jars.

Every test that cannot run without one asks here. A missing part skips the test with a reason of one form, which the
end of `make test` counts; where TAILRACE_PARTS is `required`, as `.ci/run` sets it, it fails the test instead.

    python -m tests.parts bring     `make tools`: installs what is missing, and says what it could not install
    python -m tests.parts report    the end of `make test`: what was skipped, and the command that brings it
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NoReturn

import pytest

from bench.maven import JarsNotFoundError, bring_jars

ROOT = Path(__file__).parents[1]
NODE_SCRIPTS = ROOT / "tests" / "compat" / "node"
NODE_INSTALLED = ROOT / ".cache" / "compat-node"
REGISTRY_NODE_SCRIPTS = ROOT / "tests" / "compat" / "registry" / "node"
REGISTRY_NODE_INSTALLED = ROOT / ".cache" / "compat-registry-node"
NPM_DEADLINE_S = 300.0
PYSPARK_DEADLINE_S = 600.0
APT_DEADLINE_S = 900.0

# Whether a missing part fails a test, and the file in which `make test` collects the reasons of skips.
MODE_VARIABLE = "TAILRACE_PARTS"
RECORD_VARIABLE = "TAILRACE_MISSING_PARTS"
MARK = "missing part: "

# Each program, and the Debian package that has it.
DEBIAN_PACKAGES = {
    "kcat": "kcat",
    "haproxy": "haproxy",
    "javac": "default-jdk-headless",
    "mvn": "maven",
    "node": "nodejs",
    "npm": "npm",
    "faketime": "faketime",
    "chromium": "chromium",
    "systemd-analyze": "systemd",
    "promtool": "prometheus",
    "prometheus": "prometheus",
}
# The jars of each pom, and their folder below .cache.
POMS = {
    "examples/clients/java/pom.xml": "examples-java",
    "tests/compat/java/pom.xml": "compat-java",
    "tests/compat/java/jmx/pom.xml": "compat-java-jmx",
    "tests/compat/java/old/pom.xml": "compat-java-old",
    "tests/compat/java/streams/pom.xml": "compat-java-streams",
    "tests/compat/java/tier/pom.xml": "compat-java-tier",
    "tests/spark/java/pom.xml": "spark-java",
}
# Those that only long tests need: they are brought when one asks.
POMS_OF_LONG_TESTS = {
    "tests/compat/java/servers/2.1/pom.xml": "compat-server-2.1",
    "tests/compat/java/servers/2.8/pom.xml": "compat-server-2.8",
    "tests/compat/java/servers/3.9/pom.xml": "compat-server-3.9",
}
# Debian leaves these out of the PATH of people, and puts servers such as haproxy there.
_SERVER_FOLDERS = os.pathsep.join(("/usr/local/sbin", "/usr/sbin"))


class PartNotFoundError(RuntimeError):
    """A part is not installed and cannot be brought; the message says why."""


def need_program(name: str) -> str:
    """The path of a program."""
    return find_program(name) or miss_part(f"{name} is not installed")


def need_jars(pom: str) -> Path:
    """The folder with the jars of one of POMS, or of those that long tests need."""
    try:
        return bring_jars(ROOT / pom, (POMS | POMS_OF_LONG_TESTS)[pom])
    except JarsNotFoundError as error:
        miss_part(str(error))


def need_node_clients() -> Path:
    """The folder with the JavaScript clients and our scripts that use them."""
    try:
        return bring_node_clients()
    except PartNotFoundError as error:
        miss_part(str(error))


def need_registry_node_clients() -> Path:
    """The same for clients of schema registries, which bring hundreds of packages along."""
    try:
        return bring_node_clients(REGISTRY_NODE_SCRIPTS, REGISTRY_NODE_INSTALLED)
    except PartNotFoundError as error:
        miss_part(str(error))


def need_pyspark(version: str) -> Path:
    """A folder with this version of pyspark, and nothing else, to stand before all others on the path."""
    folder = ROOT / ".cache" / f"pyspark-{version}"
    if not (folder / f"pyspark-{version}.dist-info").exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
        try:
            done = subprocess.run(
                [*command, f"pyspark=={version}"],
                capture_output=True,
                text=True,
                timeout=PYSPARK_DEADLINE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            miss_part(f"pip has not brought pyspark {version} within {PYSPARK_DEADLINE_S:.0f} s")
        if done.returncode != 0:
            miss_part(f"pip cannot bring pyspark {version}: {done.stderr.strip()[-200:]}")
    return folder


def need_java_for_spark() -> None:
    """Puts the Java that Spark runs on, the machine's or pip's, into the environment that child processes inherit."""
    from tailrace.spark.session import JavaNotFoundError, prepare_environment

    try:
        prepare_environment(is_local=True)
    except JavaNotFoundError as error:
        miss_part(str(error))


def miss_part(reason: str) -> NoReturn:
    if os.environ.get(MODE_VARIABLE) == "required":
        pytest.fail(f"{MARK}{reason} (`make tools` brings what Debian, npm and Maven have)", pytrace=False)
    pytest.skip(f"{MARK}{reason}")


def find_program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path=_SERVER_FOLDERS)


def bring_node_clients(scripts: Path = NODE_SCRIPTS, folder: Path = NODE_INSTALLED) -> Path:
    """Installs the packages of npm that `package.json` beside the scripts names, if they are not there yet. Raises
    PartNotFoundError."""
    if find_program("node") is None or find_program("npm") is None:
        raise PartNotFoundError("node and npm are not installed")
    folder.mkdir(parents=True, exist_ok=True)
    wanted = (scripts / "package.json").read_bytes()
    installed = folder / "installed.json"
    if not installed.exists() or installed.read_bytes() != wanted:
        (folder / "package.json").write_bytes(wanted)
        command = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=NPM_DEADLINE_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise PartNotFoundError(f"npm install did not end within {NPM_DEADLINE_S:.0f} s") from None
        if done.returncode != 0:
            raise PartNotFoundError(f"npm install failed: {done.stderr.strip()[-200:]}")
        installed.write_bytes(wanted)
    # Node looks for packages beside the script, so the scripts go where the packages are.
    for script in scripts.glob("*.mjs"):
        shutil.copy(script, folder)
    return folder


def record_skip(report: pytest.TestReport) -> None:
    """Notes the reason of a skip for a missing part in the file that `make test` names."""
    path = os.environ.get(RECORD_VARIABLE)
    if path is None or not report.skipped or not isinstance(report.longrepr, tuple):
        return
    _, is_part, reason = report.longrepr[2].partition(MARK)
    if is_part:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with Path(path).open("a") as file:
            file.write(" ".join(reason.split()) + "\n")


def report() -> None:
    path = Path(os.environ[RECORD_VARIABLE])
    reasons = Counter(path.read_text().splitlines() if path.exists() else ())
    if not reasons:
        print("No test was skipped for a missing part.")
        return
    print(f"{reasons.total()} tests were skipped for a missing part. `make tools` brings what is missing:")
    for reason, count in reasons.most_common():
        print(f"{count:5} {'test' if count == 1 else 'tests'}: {reason}")


def bring() -> int:
    """Installs every missing part; the exit code, 1 if one is missing still."""
    missing = [name for name in DEBIAN_PACKAGES if find_program(name) is None]
    problems = []
    if missing:
        try:
            _install_debian_packages([DEBIAN_PACKAGES[name] for name in missing])
        except PartNotFoundError as error:
            problems.append(str(error))
    for scripts, folder in ((NODE_SCRIPTS, NODE_INSTALLED), (REGISTRY_NODE_SCRIPTS, REGISTRY_NODE_INSTALLED)):
        try:
            bring_node_clients(scripts, folder)
        except PartNotFoundError as error:
            problems.append(str(error))
    for pom, folder in POMS.items():
        try:
            bring_jars(ROOT / pom, folder)
        except JarsNotFoundError as error:
            problems.append(str(error))
    for problem in problems:
        print(f"make tools: {problem}", file=sys.stderr)
    if not problems:
        print("Every part that the tests need is there.")
    return 1 if problems else 0


def _install_debian_packages(packages: list[str]) -> None:
    """As root, or by sudo. Raises PartNotFoundError."""
    names = " ".join(packages)
    if shutil.which("apt-get") is None:
        raise PartNotFoundError(f"there is no apt-get here: install by other means what Debian calls {names}")
    as_root = [] if os.geteuid() == 0 else ["sudo"]
    if as_root and shutil.which("sudo") is None:
        raise PartNotFoundError(f"only root may install packages, and there is no sudo: apt-get install {names}")
    apt = [*as_root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y"]
    install = [*apt, "install", "--no-install-recommends", *packages]
    print(f"Installing {names}", flush=True)
    # A machine that was made of an image has no lists of packages, or old ones: only then they are fetched.
    for command in (install, [*apt, "update"], install):
        code = subprocess.run(command, stdout=subprocess.DEVNULL, timeout=APT_DEADLINE_S, check=False).returncode
        if command is install and code == 0:
            return
    raise PartNotFoundError(f"apt-get could not install {names}")


if __name__ == "__main__":
    sys.exit({"bring": bring, "report": report}[sys.argv[1]]())
