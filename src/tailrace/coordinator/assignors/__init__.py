"""Who gets which partitions: the assignors that the broker runs for its consumer groups, by name."""

from collections.abc import Mapping

from tailrace.coordinator.assignors.range import assign_ranges
from tailrace.coordinator.assignors.spec import Assignor
from tailrace.coordinator.assignors.uniform import assign_uniformly

ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniformly, "range": assign_ranges}
