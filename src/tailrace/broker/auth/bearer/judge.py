"""Is a token good? Its signature is checked in a helper thread, a few at a time, in the order of arrival. If it names a
key that is not known, the keys may be read anew first (`source` says how often).
"""

from __future__ import annotations

import asyncio
from functools import partial

from tailrace.broker.auth.bearer.checks import Expected, check_token
from tailrace.broker.auth.bearer.source import KeySource
from tailrace.broker.auth.conversations import Bearer, Doubt
from tailrace.model.ports import Ports


class Judge:
    def __init__(self, source: KeySource, expected: Expected, ports: Ports, *, under_way_max: int) -> None:
        self.source = source
        self._expected = expected
        self._ports = ports
        self._places = asyncio.Semaphore(under_way_max)

    async def judge(self, token: str) -> Bearer | Doubt:
        verdict = await self._check(token)
        if isinstance(verdict, Doubt) and verdict.is_key_unknown and await self.source.read_early():
            verdict = await self._check(token)
        return verdict

    async def _check(self, token: str) -> Bearer | Doubt:
        async with self._places:
            now_ms = self._ports.clock.wall_ms()
            check = partial(check_token, token, self.source.keys, self._expected, now_ms)
            return await self._ports.background.run(check)
