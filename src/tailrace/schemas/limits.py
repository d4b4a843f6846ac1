"""How much a schema may ask of whoever parses and compares it. Text that strangers send must not hold a process for
minutes, nor exhaust Python's stack: every level of nesting takes a few frames of each walk over a schema."""

from typing import NamedTuple

# Python has a thousand frames unless it is told otherwise, and a walk over the worst schema takes seven a level.
NESTING_MAX = 150
FRAMES_A_LEVEL = 12
# protoc nests no deeper, and neither does the binary form of a descriptor.
PROTOBUF_NESTING_MAX = 100


class Limits(NamedTuple):
    nesting_max: int = NESTING_MAX
    # Parts of two JSON Schemas that are compared: combinations of hundreds with hundreds take some seconds.
    pairs_max: int = 200_000


DEFAULT_LIMITS = Limits()
