"""What one run tells of itself, from its first step to its last word.

Called by whichever thread has something to tell; each change is in the file of the run before the call returns. A file
that cannot be written (a full disk) never ends a pipeline: others see that it has fallen silent.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any

from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.real.runs.folder import RunFile, this_host
from tailrace.real.runs.status import ENDED, RunStatus, State
from tailrace.spark.operating.lag import Lag
from tailrace.spark.pipelines.progress import BatchProgress, Sign


class Telling:
    def __init__(
        self,
        file: RunFile,
        *,
        name: str,
        checkpoint: str,
        declared_in: str,
        summary: str,
        is_watched: bool = True,
    ) -> None:
        """`is_watched`: somebody asks the brokers for its lag; else it is what its batches say of theirs."""
        now = time.time()
        self.stop = threading.Event()
        # Up to where the last batch that was finished has taken the sources; None while nobody knows.
        self.done: Mapping[TopicPartition, int] | None = None
        self._file = file
        self._is_watched = is_watched
        self._lock = threading.Lock()
        self._has_failed = False  # And no batch was finished since.
        self._status = RunStatus(
            name=name,
            run_id=uuid.uuid4().hex,
            state=State.STARTING,
            checkpoint=checkpoint,
            file=declared_in,
            summary=summary,
            host=this_host(),
            process_id=os.getpid(),
            url="",
            started=now,
            written=now,
        )

    @property
    def status(self) -> RunStatus:
        return self._status

    def begin(self, url: str) -> None:
        self._change(url=url)

    def sign(self, sign: Sign) -> None:
        if sign is Sign.IDLE:
            self._has_failed = False
        if not self._has_failed:
            self._change(state=self._running(), problem="")

    def progressed(self, progress: BatchProgress) -> None:
        self._has_failed = False
        if progress.offsets:
            self.done = {
                TopicPartition(topic, PartitionIndex(int(index))): int(offset)
                for topic, offsets in progress.offsets.items()
                for index, offset in offsets.items()
            }
        was = self._status
        changes: dict[str, Any] = {
            "batches": was.batches + (progress.rows > 0),
            "rows": was.rows + progress.rows,
            "late_rows": was.late_rows + progress.late_rows,
            "last_batch": progress.batch,
            "last_batch_rows": progress.rows,
            "last_batch_ms": progress.duration_ms,
            "last_batch_at": time.time(),
        }
        if not self._is_watched:
            changes |= {"lag": progress.lag, "lag_at": time.time()}
        self._change(state=self._running(), problem="", **changes)

    def failed(self, problem: str) -> None:
        """For a reason that passes: it is tried again."""
        self._has_failed = True
        self._change(state=State.STOPPING if self.stop.is_set() else State.RETRYING, problem=problem)

    def lagging(self, lag: Lag | None) -> None:
        """None if nobody can tell."""
        if lag is None:
            self._change(lag=None, lag_seconds=None, lag_at=None)
        else:
            self._change(lag=lag.records, lag_seconds=lag.seconds, lag_at=time.time())

    def wish_to_stop(self) -> None:
        self.stop.set()
        self._change(state=State.STOPPING)

    def is_to_stop(self) -> bool:
        return self._file.is_to_stop(self._status.run_id)

    def beat(self) -> None:
        """It lives, and has nothing new to tell."""
        self._change()

    def end(self, state: State, problem: str = "") -> None:
        self._change(state=state, problem=problem)

    def _running(self) -> State:
        return State.STOPPING if self.stop.is_set() else State.RUNNING

    def _change(self, **changes: Any) -> None:
        with self._lock:
            if self._status.state in ENDED:  # The last word was said.
                return
            self._status = self._status._replace(written=time.time(), **changes)
            try:
                self._file.write(self._status)
            except OSError:
                return
