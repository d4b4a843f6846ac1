"""Where the nodes of a cluster on this machine tell their metrics: a list for Prometheus in the data folder.

The file is of the kind that `file_sd_configs` reads again whenever it changes: a node that comes back with another port
is found by it. Nodes that are dead stay in it, so that they are seen to be down.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

TARGETS_FILE = "metrics-targets.json"


def write_targets(folder: str, urls: Mapping[str, str]) -> str:
    """`urls` by the names of nodes; gives the path. Readers see the old list or the new one. Raises OSError."""
    path = f"{folder}/{TARGETS_FILE}"
    listed = []
    for name, url in urls.items():
        scheme, _, address = url.partition("://")
        listed.append({"targets": [address], "labels": {"node": name, "__scheme__": scheme}})
    with open(f"{path}.tmp", "w", encoding="utf-8") as file:
        json.dump(listed, file, indent=2)
        file.write("\n")
    os.replace(f"{path}.tmp", path)
    return path


def read_targets(folder: str) -> dict[str, str]:
    """URLs by the names of nodes. Raises FileNotFoundError if no node has ever told any."""
    with open(f"{folder}/{TARGETS_FILE}", encoding="utf-8") as file:
        listed = json.load(file)
    return {each["labels"]["node"]: f"{each['labels']['__scheme__']}://{each['targets'][0]}" for each in listed}
