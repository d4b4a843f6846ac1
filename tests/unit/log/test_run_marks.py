"""Which broker epoch a data folder proves: by a clean stop, by the boot of the machine, or not at all."""

import pytest

from tailrace.log.directory import LogDirectory
from tailrace.log.run_marks import CLEAN_MARK, RUN_MARK, LastRun, read_last_run, remove_mark, write_clean_mark
from tailrace.sim.clock import SimClock
from tailrace.sim.disk import SimDisk
from tailrace.sim.random import SimRandom

from .storage import CONFIG, PARTITION, append, sync

PATH = "/var/data"


class Machine:
    def __init__(self, seed=1):
        self.disk = SimDisk(SimClock())
        self.random = SimRandom(seed)

    def start(self, *, broker_epoch=None):
        """A run of the broker; registered, if there is an epoch."""
        directory = LogDirectory.open(self.disk, self.disk.clock, self.random, PATH, node_id=1, cluster_id="cluster-a")
        if broker_epoch is not None:
            directory.proof.note_running(broker_epoch)
        return directory


@pytest.fixture
def machine():
    return Machine()


def test_a_new_folder_proves_nothing(machine):
    directory = machine.start()
    assert directory.previous_broker_epoch == -1
    directory.close()
    assert machine.start().previous_broker_epoch == -1


def test_a_clean_stop_proves_its_epoch_even_through_a_power_loss(machine):
    machine.start(broker_epoch=7).close(broker_epoch=7)
    assert machine.disk.read(f"{PATH}/{CLEAN_MARK}") == b'{"version": 0, "brokerEpoch": 7}'
    machine.disk.power_loss(machine.random)
    directory = machine.start()
    assert directory.was_clean
    assert directory.previous_broker_epoch == 7


def test_a_dead_process_proves_its_epoch_while_the_machine_runs(machine):
    machine.start(broker_epoch=7)
    machine.disk.crash()
    directory = machine.start()
    assert not directory.was_clean
    assert directory.previous_broker_epoch == 7


@pytest.mark.parametrize("seed", range(8))
def test_a_power_loss_leaves_no_proof(seed):
    machine = Machine(seed)
    directory = machine.start(broker_epoch=7)
    append(directory.open_log(PARTITION, CONFIG))
    machine.disk.power_loss(machine.random)
    assert machine.start().previous_broker_epoch == -1
    machine.disk.crash()
    assert machine.start(broker_epoch=9).previous_broker_epoch == -1, "the run in between has proved nothing either"
    machine.disk.crash()
    assert machine.start().previous_broker_epoch == 9


@pytest.mark.parametrize("seed", range(8))
def test_a_clean_stop_does_not_outlast_the_run_after_it(seed):
    machine = Machine(seed)
    machine.start(broker_epoch=7).close()
    machine.start()
    machine.disk.power_loss(machine.random)
    assert machine.start().previous_broker_epoch == -1


def test_what_is_proved_holds_until_the_next_registration(machine):
    machine.start(broker_epoch=7).close(broker_epoch=7)
    machine.disk.power_loss(machine.random)
    machine.start()
    machine.disk.crash()  # it died before it could register
    directory = machine.start()
    assert directory.previous_broker_epoch == 7
    directory.close()  # and was stopped before it could
    assert machine.start(broker_epoch=8).previous_broker_epoch == 7
    machine.disk.crash()
    assert machine.start().previous_broker_epoch == 8


def test_a_failed_sync_takes_the_proof_back(machine):
    directory = machine.start(broker_epoch=7)
    log = directory.open_log(PARTITION, CONFIG)
    append(log)
    machine.disk.fail("sync", "*.log", count=1)
    work, end_offset = log.begin_sync()
    with pytest.raises(OSError, match="EIO") as failure:
        work()
    log.mark_sync_failed(end_offset, failure.value)
    directory.proof.note_running(8)
    machine.disk.crash()
    assert machine.start().previous_broker_epoch == -1


def test_a_sync_that_fails_while_the_run_mark_is_written_takes_it_back(machine, monkeypatch):
    directory = machine.start(broker_epoch=7)
    replace = SimDisk.replace

    def replace_slowly(disk, path, data):
        directory.fail("a sync failed")  # On the loop, while this is in Background.
        replace(disk, path, data)

    monkeypatch.setattr(SimDisk, "replace", replace_slowly)
    directory.proof.note_running(8)
    monkeypatch.undo()
    directory.close(broker_epoch=8)
    machine.disk.crash()
    assert machine.start().previous_broker_epoch == -1


def test_a_run_that_failed_a_sync_and_is_stopped_proves_nothing(machine):
    directory = machine.start(broker_epoch=7)
    append(directory.open_log(PARTITION, CONFIG))
    machine.disk.fail("sync", "*.log", count=1)
    directory.close(broker_epoch=7)
    assert machine.start().previous_broker_epoch == -1


def test_a_sync_that_succeeds_leaves_the_proof_alone(machine):
    directory = machine.start(broker_epoch=7)
    log = directory.open_log(PARTITION, CONFIG)
    append(log)
    sync(log)
    machine.disk.crash()
    assert machine.start().previous_broker_epoch == 7


def test_a_machine_that_cannot_tell_its_boots_apart_proves_nothing(machine, monkeypatch):
    monkeypatch.setattr(SimDisk, "boot_id", lambda _disk: "")
    machine.start(broker_epoch=7)
    machine.disk.crash()
    assert machine.start().previous_broker_epoch == -1


def test_a_mark_that_cannot_be_written_leaves_the_older_proof(machine):
    directory = machine.start(broker_epoch=7)
    machine.disk.fail("replace", f"*{RUN_MARK}")
    with pytest.raises(OSError, match="EIO"):
        directory.proof.note_running(8)
    machine.disk.heal()
    machine.disk.crash()
    assert machine.start().previous_broker_epoch == 7


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"brokerEpoch": "7"}'])
@pytest.mark.parametrize("name", [CLEAN_MARK, RUN_MARK])
def test_a_mark_that_does_not_parse_proves_nothing(machine, name, content):
    machine.disk.make_folder(PATH)
    machine.disk.replace(f"{PATH}/{name}", content)
    assert read_last_run(machine.disk, PATH).broker_epoch == -1


def test_a_mark_is_removed_durably_and_may_be_gone_already(machine):
    machine.disk.make_folder(PATH)
    write_clean_mark(machine.disk, PATH, broker_epoch=7)
    remove_mark(machine.disk, PATH, CLEAN_MARK)
    remove_mark(machine.disk, PATH, CLEAN_MARK)
    machine.disk.power_loss(machine.random)
    assert read_last_run(machine.disk, PATH) == LastRun(
        was_clean=False, broker_epoch=-1, is_marked=True, incarnation="", is_marked_by_us=False
    )
