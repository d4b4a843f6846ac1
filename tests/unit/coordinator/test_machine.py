"""A machine as a whole."""

import gc
import weakref

from tailrace.coordinator.history import History
from tailrace.coordinator.machine import GroupMachine
from tailrace.coordinator.offsets.store import offset_record
from tailrace.wire.apis.stored_records import OffsetCommitValue
from tests.unit.coordinator.offsets.scene import Scene, classic_group


def test_a_machine_that_is_forgotten_in_steps_leaves_nothing():
    machine = GroupMachine(History(groups_max=10, rebalances_max=10))
    for number in range(250):
        key, value, _ = classic_group(f"g{number}", "t")
        machine.replay(key, value)
        for partition in range(20):
            key, value, _ = offset_record(f"g{number}", "t", partition, OffsetCommitValue(offset=1))
            machine.replay(key, value)
    machine.on_loaded(Scene().call())
    assert machine.state.work, "which refers to the state"
    steps = sum(1 for _ in machine.forget())
    assert steps >= 3 + 5
    assert (len(machine.state.offsets.groups), len(machine.state.groups), len(machine.state.deadlines)) == (0, 0, 0)
    state = weakref.ref(machine.state)
    gc.disable()
    try:
        del machine
        assert state() is None
    finally:
        gc.enable()
