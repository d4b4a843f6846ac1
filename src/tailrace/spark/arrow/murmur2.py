"""Kafka's hash of keys, over a whole Arrow column at once: what `wire.murmur2` says, key by key.

Keys are sorted by length, so that those which still have a word to mix in are always the first ones. Where only a few
long keys are left, a step over arrays costs more than the plain function: they go through that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tailrace.wire.murmur2 import murmur2

if TYPE_CHECKING:
    import pyarrow as pa

_SEED = np.uint32(0x9747B28C)
_M = np.uint32(0x5BD1E995)
_R = np.uint32(24)
# A step of numpy over a handful of keys takes about as long as the plain function for this many.
_FEW = 24
# What is left of a word that has 0 to 3 bytes.
_TAIL_MASKS = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)


def murmur2_of(keys: pa.BinaryArray) -> NDArray[np.uint32]:
    """The hash of each key; none of them is null."""
    offsets = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    lengths = np.diff(offsets)
    order = np.argsort(-lengths, kind="stable")
    first, last = (int(offsets[0]), int(offsets[-1])) if len(keys) else (0, 0)
    hashes = _mix(_words(keys, first, last), (offsets[:-1] - first)[order], lengths[order])
    result = np.empty_like(hashes)
    result[order] = hashes
    for index in order[: _count_for_plain(lengths[order])]:
        result[index] = murmur2(keys[int(index)].as_py())
    return result


def _count_for_plain(descending: NDArray[np.int64]) -> int:
    """How many of the longest keys are left to the plain function: those past the last word that many share."""
    if len(descending) <= _FEW:
        return len(descending)
    return int(np.count_nonzero(descending[:_FEW] // 4 > descending[_FEW] // 4))


def _words(keys: pa.BinaryArray, first: int, last: int) -> NDArray[np.uint32]:
    """For every position, the four bytes from there on. The end is padded, for keys whose last word is not whole."""
    padded = np.zeros(last - first + 4, np.uint8)
    data = keys.buffers()[2]
    if data is not None:
        padded[:-4] = np.frombuffer(data, np.uint8)[first:last]
    return np.ndarray((len(padded) - 3,), "<u4", padded.data, strides=(1,))


def _mix(words: NDArray[np.uint32], starts: NDArray[np.int64], descending: NDArray[np.int64]) -> NDArray[np.uint32]:
    """The hashes, except of the first `_count_for_plain` keys."""
    state = _SEED ^ descending.astype(np.uint32)
    whole = descending // 4
    shared = int(whole[_FEW]) if len(descending) > _FEW else 0
    for step in range(shared):
        active = int(np.searchsorted(-whole, -step))
        word = words[starts[:active] + 4 * step] * _M
        word = (word ^ (word >> _R)) * _M
        state[:active] = state[:active] * _M ^ word
    left = descending & 3
    tail = words[starts + 4 * whole] & _TAIL_MASKS[left]
    state = np.where(left > 0, (state ^ tail) * _M, state)
    state = (state ^ (state >> np.uint32(13))) * _M
    hashes: NDArray[np.uint32] = state ^ (state >> np.uint32(15))
    return hashes
