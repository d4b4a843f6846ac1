"""The real Random: the kernel's own generator, so that ids are unique among processes and hosts.

The standard library's `random` is not used: its import alone costs several milliseconds of the start-up.
"""

import os

_FLOAT_BITS = 53
_HYPHEN = 62  # the six bits that base64url writes as one


class RealRandom:
    def random(self) -> float:
        return (int.from_bytes(os.urandom(7), "big") >> 3) / (1 << _FLOAT_BITS)

    def randrange(self, stop: int) -> int:
        if stop <= 0:
            raise ValueError(f"randrange needs a positive stop, not {stop}")
        # 16 bytes more than needed: the bias of the modulus is below 2**-128.
        return int.from_bytes(os.urandom((stop.bit_length() + 7) // 8 + 16), "big") % stop

    def uuid(self) -> bytes:
        """16 random bytes with the version and variant bits of a version 4 UUID. As in Kafka, its text never begins
        with a hyphen, which a command would take for an option."""
        raw = bytearray(os.urandom(16))
        while raw[0] >> 2 == _HYPHEN:
            raw[0] = os.urandom(1)[0]
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        return bytes(raw)
