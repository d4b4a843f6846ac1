"""CRC-32C, the checksum of a record batch.

Owns how the C function of the `crc32c` package is reached, nothing else. It takes any buffer, memoryviews of
received frames included, and lets other threads run while it sums a large one. With the sum of what came before as
second argument it goes on from there.
"""

from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Protocol, cast

from tailrace.model.ports import Bytes


class Checksum(Protocol):
    def __call__(self, data: Bytes, value: int = 0, /) -> int: ...


def _load() -> Checksum:
    # The package's own __init__ asks importlib.metadata for its version: 33 ms, a tenth of the time in which a broker
    # has to be ready. Its extension module alone loads in 0.5 ms.
    package = PathFinder.find_spec("crc32c")
    if package is not None:
        spec = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
        if spec is not None and spec.loader is not None:
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            return cast(Checksum, module.crc32c)
    from crc32c import crc32c as checksum

    return checksum


crc32c: Checksum = _load()
