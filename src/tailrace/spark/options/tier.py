"""Options that say where the tier of the cluster lies, for executors to read its segments from there."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.spark.options.errors import OptionError
from tailrace.spark.options.parsing import Options

# As brokers name the settings of their store.
STORE_PREFIX = "rsm.config."


@dataclass(frozen=True)
class TierOptions:
    url: str
    settings: tuple[tuple[str, str], ...]  # Of the store, without the prefix.
    is_alone: bool  # No broker is asked: what is not in the tier is not read.


def parse_tier(options: Options) -> TierOptions | None:
    """None without a tier. Raises OptionError."""
    url, brokers = options.get("tier", "").strip(), options.get("brokers", "auto").strip().lower()
    given = sorted((name, text) for name, text in options.items() if name.startswith(STORE_PREFIX))
    if brokers not in ("auto", "never"):
        raise OptionError(
            f"option brokers is {brokers!r}: expected auto (they are read from where the tier ends) or never"
        )
    if not url:
        if brokers == "never" or "tier" in options:
            raise OptionError("option tier is missing: it is what brokers have as remote.log.storage.url")
        if given:
            raise OptionError(f"option {given[0][0]} is of a store, and option tier names none")
        return None
    settings = tuple((name.removeprefix(STORE_PREFIX), text) for name, text in given)
    return TierOptions(url, settings, is_alone=brokers == "never")


def needs_brokers(options: Options) -> bool:
    tier = parse_tier(options)
    return tier is None or not tier.is_alone
