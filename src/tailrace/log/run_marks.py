"""What a data folder proves about the run before: whether all is stored, and that nothing acknowledged is missing.

    .kafka_cleanshutdown   Kafka's: all was stored and synced; JSON, unknown keys are ignored by Kafka
    .tailrace_running      ours: in which boot of the machine a run went on, and as which broker epoch; JSON

The one rule, for the broker epoch that a folder may name as its last to the controller:

    clean mark                      its epoch: everything is on the device
    run mark of this very boot      its epoch: only the process has died, and the kernel kept what it had written
    else                            none: a power loss may have taken the tail of any log

A broker knows its epoch only once it is registered. Killed before it could note it, it would prove the epoch before,
which the controller has forgotten. So its incarnation is noted first, and the metadata tells which epoch that one got
(`broker.cluster.proof`). A run whose disk has failed a sync proves nothing any more, because the kernel
may have dropped what it could not write: its mark is withdrawn, and no other one is written.

The proof is one for all logs of the folder. A log that is found damaged is named to the controller, and excepted from
it there. Until the controller knows, the folder proves nothing: recovery cuts off what is damaged, and a start after
the next kill would see no trace of it.
"""

import json
from contextlib import suppress
from typing import NamedTuple

from tailrace.model.ports import Disk

CLEAN_MARK = ".kafka_cleanshutdown"
RUN_MARK = ".tailrace_running"
NO_BROKER_EPOCH = -1


class LastRun(NamedTuple):
    was_clean: bool
    broker_epoch: int  # -1: not proved
    is_marked: bool  # the run mark says the same already
    incarnation: str  # of a run that was about to register, and may have got a later epoch; else nothing
    is_marked_by_us: bool  # a run mark is there, of whatever boot: the folder was left by a broker of ours


class Proof:
    """What a folder may prove of its last run, and of this one when it ends."""

    def __init__(self, disk: Disk, folder: str) -> None:
        """OSError."""
        self.last_run = read_last_run(disk, folder)
        self._disk = disk
        self._folder = folder
        self._broker_epoch = self.last_run.broker_epoch  # what this run may prove when it ends
        self._has_lost = False  # a sync failed: this run proves nothing
        self._is_suspended = False  # damage was found that the controller does not know of yet

    def begin_run(self) -> None:
        """From here on a kill is an unclean stop. OSError."""
        if not self.last_run.is_marked:
            # What the clean stop proves holds as long as the machine runs, even if the broker dies unregistered. This
            # is written before the clean mark goes, or a kill between the two would lose the proof.
            write_run_mark(self._disk, self._folder, broker_epoch=self.last_run.broker_epoch)
        remove_mark(self._disk, self._folder, CLEAN_MARK)

    def note_registering(self, incarnation: str, broker_epoch: int) -> None:
        """This broker is about to register as `incarnation`; the folder proves `broker_epoch`, or nothing. As below."""
        if broker_epoch >= 0 and not self._has_lost:
            write_run_mark(self._disk, self._folder, broker_epoch=broker_epoch, incarnation=incarnation)

    def note_running(self, broker_epoch: int) -> None:
        """This broker is registered with `broker_epoch`. Blocks: Background only. OSError, which costs only the proof;
        no answer depends on it."""
        if self._has_lost or self._is_suspended:
            return
        write_run_mark(self._disk, self._folder, broker_epoch=broker_epoch)
        self._broker_epoch = broker_epoch
        if self._has_lost or self._is_suspended:  # Since it was looked at: the loop goes on beside this.
            self._drop()

    def suspend(self) -> None:
        """Damage was found, and is about to be cut off. OSError."""
        if not self._is_suspended:
            self._is_suspended = True
            self._broker_epoch = NO_BROKER_EPOCH
            remove_mark(self._disk, self._folder, RUN_MARK)

    def resume(self) -> None:
        """The controller knows of the damage; `note_running` marks the run again."""
        self._is_suspended = False

    def withdraw(self) -> None:
        """A sync failed: what was acknowledged may be missing even if only this process ends."""
        self._has_lost = True
        self._drop()

    def end_run(self, broker_epoch: int) -> None:
        """All is stored. A run that was never registered proves what the one before it did. OSError."""
        is_proved = broker_epoch >= 0 and not self._is_suspended
        epoch = broker_epoch if is_proved else self._broker_epoch
        write_clean_mark(self._disk, self._folder, broker_epoch=epoch)

    def _drop(self) -> None:
        self._broker_epoch = NO_BROKER_EPOCH
        with suppress(OSError):  # A disk that refuses this too will hardly give the mark back.
            remove_mark(self._disk, self._folder, RUN_MARK)


def read_last_run(disk: Disk, folder: str) -> LastRun:
    """A mark that does not parse proves nothing. OSError."""
    clean, run = _read(disk, f"{folder}/{CLEAN_MARK}"), _read(disk, f"{folder}/{RUN_MARK}")
    boot_id = disk.boot_id()
    is_same_boot = run is not None and boot_id != "" and run.get("bootId") == boot_id
    run_epoch = _epoch_of(run) if is_same_boot else NO_BROKER_EPOCH
    epoch = run_epoch if clean is None else _epoch_of(clean)
    incarnation = run.get("incarnation") if run is not None and is_same_boot and clean is None else ""
    return LastRun(
        was_clean=clean is not None,
        broker_epoch=epoch,
        is_marked=epoch == run_epoch,
        incarnation=incarnation if isinstance(incarnation, str) else "",
        is_marked_by_us=run is not None,
    )


def write_clean_mark(disk: Disk, folder: str, *, broker_epoch: int) -> None:
    mark = {"version": 0, "brokerEpoch": broker_epoch}
    disk.replace(f"{folder}/{CLEAN_MARK}", json.dumps(mark).encode("ascii"))


def write_run_mark(disk: Disk, folder: str, *, broker_epoch: int, incarnation: str = "") -> None:
    mark = {"version": 0, "brokerEpoch": broker_epoch, "bootId": disk.boot_id()}
    if incarnation:
        mark["incarnation"] = incarnation
    disk.replace(f"{folder}/{RUN_MARK}", json.dumps(mark).encode("ascii"))


def remove_mark(disk: Disk, folder: str, name: str) -> None:
    """Durably: a power loss must not bring back the proof."""
    try:
        disk.remove(f"{folder}/{name}")
    except FileNotFoundError:
        return
    disk.sync_folder(folder)


def _read(disk: Disk, path: str) -> dict[str, object] | None:
    try:
        mark = json.loads(disk.read(path))
    except FileNotFoundError:
        return None
    except ValueError:
        return None
    return mark if isinstance(mark, dict) else None


def _epoch_of(mark: dict[str, object] | None) -> int:
    epoch = mark.get("brokerEpoch") if mark is not None else None
    return epoch if isinstance(epoch, int) else NO_BROKER_EPOCH
