"""What lies in deploy/: judged by the tools that read it, and by our own commands."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes_validate import latest_version, validate

from tailrace.cli.apps import console, gateway
from tailrace.cli.node.up import register
from tests.parts import need_program

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))


def of_kind(kind: str) -> dict[str, Any]:
    return next(each for each in manifests() if each["kind"] == kind)


@pytest.mark.parametrize("manifest", manifests(), ids=lambda each: each["kind"])
def test_kubernetes_takes_the_manifests(manifest):
    validate(manifest, latest_version(), strict=True)


def test_manifests_fit_each_other():
    (container,) = of_kind("StatefulSet")["spec"]["template"]["spec"]["containers"]
    assert {each["containerPort"] for each in container["ports"]} == {
        each["port"] for each in of_kind("Service")["spec"]["ports"]
    }
    assert of_kind("StatefulSet")["spec"]["serviceName"] == of_kind("Service")["metadata"]["name"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["path"] in ("/health/live", "/health/ready")


def test_each_pod_formats_its_node_and_all_are_one_quorum(tmp_path: Path):
    script = of_kind("ConfigMap")["data"]["start.sh"]
    binaries = tmp_path / "bin"
    binaries.mkdir()
    (binaries / "tailrace").write_text(f'#!/bin/sh\nexec {sys.executable} -m tailrace "$@"\n')
    (binaries / "tailrace").chmod(0o755)
    voters = set()
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        environment = os.environ | {
            "PATH": f"{binaries}:{os.environ['PATH']}",
            "HOSTNAME": f"tailrace-{number}",
            "SETTINGS": str(folder / "node.toml"),
            "DATA": str(folder),
            "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
            # In the place of the broker, which would need the names of pods.
            "RUN": "echo",
        }
        for _ in range(2):  # A pod that comes back finds its folder formatted.
            done = subprocess.run(
                ["sh", "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=False
            )
            assert done.returncode == 0, done.stderr
        assert f"node.id={number + 1}" in (folder / "data" / "meta.properties").read_text()
        text = (folder / "node.toml").read_text()
        voters.add(next(line for line in text.splitlines() if line.startswith("controller.quorum.voters")))
    assert len(voters) == 1


UNITS = ("tailrace.service", "tailrace-console.service", "tailrace-gateway.service")
# What systemd-analyze gives, times ten: a unit without any hardening has 96.
EXPOSURE_MAX = 20


@pytest.mark.parametrize("name", UNITS)
def test_systemd_takes_the_units(name: str, tmp_path: Path):
    need_program("systemd-analyze")
    binary = tmp_path / "tailrace"
    binary.write_text("#!/bin/sh\n")
    binary.chmod(0o755)
    unit = tmp_path / name
    unit.write_text((DEPLOY / name).read_text().replace("/opt/tailrace/bin/tailrace", str(binary)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    told = [line for line in done.stderr.splitlines() if name in line]
    assert (done.returncode, told) == (0, [])
    command = ["systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE_MAX}", "--no-pager", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


@pytest.mark.parametrize("name", UNITS[1:])
def test_the_commands_of_the_units_are_some(name: str):
    (command,) = [line for line in (DEPLOY / name).read_text().splitlines() if line.startswith("ExecStart=")]
    _, app, *words = command.removeprefix("ExecStart=").replace(" $TAILRACE_OPTIONS", "").split()
    parser = argparse.ArgumentParser()
    {"console": console.register, "gateway": gateway.register}[app](parser)
    assert str(parser.parse_args(words).bootstrap[0]) == "127.0.0.1:9092"


def test_the_command_of_the_compose_file_is_one(tmp_path: Path):
    service = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["tailrace"]
    parser = argparse.ArgumentParser()
    register(parser)
    options = parser.parse_args(service["command"][1:])
    apps = (options.console_port, options.registry_port, options.gateway_port)
    assert (options.brokers, *apps) == (3, 9080, 8081, 8082)
    published = {int(each.rpartition(":")[2].partition("-")[0]) for each in service["ports"]}
    assert published == {9092, *apps}
