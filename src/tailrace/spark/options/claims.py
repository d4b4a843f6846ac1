"""Options of the claim check: whether values that lie in an object store are resolved, and out of which one.

Every process of a query reads these, and few of them resolve anything: the client kit is not imported here.
"""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.spark.options.errors import OptionError
from tailrace.spark.options.parsing import Options

PREFIX = "claimcheck.config."
# What of a record has to be read beside its value.
NEEDED = ("headers", "topic", "partition", "offset")


@dataclass(frozen=True)
class ClaimOptions:
    url: str
    settings: tuple[tuple[str, str], ...]  # of the store


def parse_claims(options: Options) -> ClaimOptions | None:
    """None: references stay as they are. Raises OptionError."""
    choice = options.get("claimcheck", "reference").strip().lower()
    url = options.get("claimcheck.url", "").strip()
    settings = tuple(sorted((name[len(PREFIX) :], text) for name, text in options.items() if name.startswith(PREFIX)))
    if choice not in ("resolve", "reference"):
        raise OptionError(
            f"option claimCheck is {choice!r}: expected resolve (values come out of the store) or reference (as they "
            "stand in the topic)"
        )
    if choice == "resolve":
        if not url:
            raise OptionError(
                "option claimCheck.url is missing: it is the address that Claims(...) has, s3://bucket/path"
            )
        return ClaimOptions(url, settings)
    if url or settings:
        raise OptionError("option claimCheck is reference, so no store is read: set it to resolve, or name no store")
    return None
