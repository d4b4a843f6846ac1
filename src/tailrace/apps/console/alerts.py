"""What holds now, as `tailrace alerts run --status FILE` keeps it: the console judges nothing by itself.

The file tells of all nodes, groups and topics, so where the cluster wants logins it is shown to those who may DESCRIBE
the cluster.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

# So many readings may be missing before what is there counts as old.
_READINGS_MISSED_MAX = 3
_SIZE_MAX_BYTES = 16 << 20


class Status(NamedTuple):
    problem: str = ""
    alerts: tuple[dict[str, Any], ...] = ()
    rules: tuple[dict[str, Any], ...] = ()
    nodes: tuple[dict[str, Any], ...] = ()
    at_s: float = 0.0

    @property
    def told(self) -> int:
        return sum(each["is_told"] and not each["is_silenced"] for each in self.alerts)


def read_status(path: str, now_s: float) -> Status:
    """Never raises: what is wrong with the file is the problem that is shown."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.loads(file.read(_SIZE_MAX_BYTES))
        status = Status(
            found["problem"], tuple(found["alerts"]), tuple(found["rules"]), tuple(found["nodes"]), float(found["at"])
        )
        age_s, interval_s = now_s - status.at_s, float(found["interval_seconds"])
    except FileNotFoundError:
        return Status(f"{path} is not there: nothing was told yet by `tailrace alerts run --status {path}`")
    except OSError as error:
        return Status(f"cannot read {path}: {error.strerror}")
    except (ValueError, KeyError, TypeError):
        return Status(f"{path} is not what `tailrace alerts run --status` writes")
    if age_s > _READINGS_MISSED_MAX * interval_s + 5:
        return status._replace(problem=f"this is {age_s:.0f} s old: does `tailrace alerts` still run?")
    return status
