"""What the journals of a group's members must add up to, whatever became of members and brokers meanwhile.

- Every record that was written was read, and each where and as it was written.
- A partition has one owner at a time: from when a member was told that it owns it until it had given it back, or died.
- For as long as a member owns a partition it reads it in order and leaves nothing out.
- It begins where the group had got to: nothing is read again whose commit was confirmed before. So what is read twice
  was not committed yet when its reader died, which at-least-once allows.

Who was told that it has lost a partition (its session was over) may have been replaced before that: its stretch is not
held against the next owner, and its count is told, so that a test in which nobody stalls can ask for none.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple


class Event(NamedTuple):
    """A line of a journal; `time_ns` is by the clock that all processes of this machine share."""

    kind: str  # assigned, revoked, lost, read, committed or said
    time_ns: int
    what: Any


@dataclass
class Stretch:
    """A partition in the hands of one member."""

    member: str
    partition: int
    begin_ns: int
    end_ns: int | None = None  # None: until its member's end.
    is_lost: bool = False
    offsets: list[int] = field(default_factory=list)


class Summary(NamedTuple):
    stretches: int
    lost: int
    read: int
    repeated: int


def check_account(
    journals: Mapping[str, Sequence[Event]],
    ends_ns: Mapping[str, int],
    written: Sequence[int],
    *,
    may_reread: bool = False,
) -> Summary:
    """`ends_ns` tells when each member was killed or closed, `written` how many records each partition holds; record n
    of a partition has the value n. `may_reread` is for libraries that go back to the committed offset by themselves."""
    stretches = [each for name, journal in journals.items() for each in _stretches(name, journal, ends_ns[name])]
    by_partition: dict[int, list[Stretch]] = defaultdict(list)
    for each in sorted(stretches, key=lambda stretch: stretch.begin_ns):
        by_partition[each.partition].append(each)
    commits = _commits(journals)
    read = 0
    for partition, count in enumerate(written):
        mine = by_partition[partition]
        _check_one_owner(mine)
        _check_order(mine, may_reread=may_reread)
        _check_no_return(mine, commits[partition])
        found = {offset for each in mine for offset in each.offsets}
        lost = sorted(set(range(count)) - found)
        assert not lost, f"partition {partition}: {len(lost)} of {count} records were never read, such as {lost[:5]}"
        strangers = sorted(found - set(range(count)))
        assert not strangers, f"partition {partition}: {strangers[:5]} were read and never written"
        read += sum(len(each.offsets) for each in mine)
    return Summary(len(stretches), sum(each.is_lost for each in stretches), read, read - sum(written))


def owned_now(journal: Iterable[Event]) -> set[int]:
    owned: set[int] = set()
    for event in journal:
        if event.kind == "assigned":
            owned |= set(event.what)
        elif event.kind in ("revoked", "lost"):
            owned -= set(event.what)
    return owned


def _stretches(member: str, journal: Sequence[Event], end_ns: int) -> list[Stretch]:
    found: list[Stretch] = []
    open_now: dict[int, Stretch] = {}
    for event in journal:
        if event.kind == "assigned":
            for partition in event.what:
                assert partition not in open_now, f"{member} was given {partition} twice"
                open_now[partition] = Stretch(member, partition, event.time_ns)
                found.append(open_now[partition])
        elif event.kind in ("revoked", "lost"):
            for partition in event.what:
                stretch = open_now.pop(partition)
                stretch.end_ns = min(event.time_ns, end_ns)
                stretch.is_lost = event.kind == "lost"
        elif event.kind == "read":
            for partition, offset, value in event.what:
                assert partition in open_now, f"{member} read {partition}@{offset}, which it does not own"
                assert offset == value, f"{partition}@{offset} holds {value}"
                open_now[partition].offsets.append(offset)
    for stretch in open_now.values():
        stretch.end_ns = end_ns
    return found


def _commits(journals: Mapping[str, Sequence[Event]]) -> dict[int, list[tuple[int, int]]]:
    """For each partition: (time of the confirmation, offset)."""
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for journal in journals.values():
        for event in journal:
            if event.kind == "committed":
                for partition, offset in event.what:
                    found[partition].append((event.time_ns, offset))
    return found


def _check_one_owner(stretches: Sequence[Stretch]) -> None:
    for before, after in pairwise(stretches):
        assert before.end_ns is not None
        assert before.is_lost or before.end_ns <= after.begin_ns, (
            f"partition {before.partition} had two owners for {(before.end_ns - after.begin_ns) / 1e6:.1f} ms: "
            f"{before.member} and {after.member}"
        )


def _check_order(stretches: Sequence[Stretch], *, may_reread: bool) -> None:
    for each in stretches:
        for before, after in pairwise(each.offsets):
            assert after == before + 1 or (may_reread and after <= before), (
                f"{each.member} read {each.partition}@{after} after {before}"
            )


def _check_no_return(stretches: Sequence[Stretch], commits: Sequence[tuple[int, int]]) -> None:
    for each in stretches:
        confirmed = max((offset for time_ns, offset in commits if time_ns < each.begin_ns), default=0)
        assert not each.offsets or each.offsets[0] >= confirmed, (
            f"{each.member} began to read {each.partition} at {each.offsets[0]}, after a commit of {confirmed}"
        )
