"""One client connection: receives, cuts frames, takes them in order, and sends the answers in the same order.

Rules
- Frames are parsed in place, in a buffer lent from the pool. A connection without unread bytes holds none; so a handler
  that has to wait before its effect copies the records it was given (all else that is decoded are copies already),
  and its request counts as memory in use until it is done.
- One request at a time, as in Kafka, with one exception: a Produce that has appended lets the next request start and
  keeps its place (`outbox.Slots`). A parked Fetch and a handler that has to wait hold the later requests back.
- Answers are joined and sent once a turn, or at once when no other is waited for. While output is queued no further
  request is taken, nor while the answers of this connection that are not sent exceed a bound in bytes, so a slow reader
  is held back by TCP and costs at most one buffer, that bound and one answer.
- A turn ends after some requests or, since these may take long, some milliseconds; who has more waits (`turns`).
- A request that is not whole must come in fast enough (`arrival`); small ones have memory whatever others hold.
- A client that has used more than its quotas let it is answered, and then not read for a while (`quotas.mute`).
- While requests are held back, what arrives is received only as far as the lent buffer has room: enough to notice
  that the client is gone. One that waits for memory receives nothing, and is asked now and then (`has_lost_client`).
- Whatever breaks the protocol closes the connection, after the answers to earlier requests. A disconnect drops the
  slots; an append is never undone, and a handler under way runs to its end.
"""

from __future__ import annotations

from asyncio import Future, ensure_future
from collections.abc import Callable, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any

from tailrace.broker.context import BoundListener, Pending, RequestContext, UnanswerableError
from tailrace.broker.quotas.mute import Mute
from tailrace.broker.serving.arrival import Arrival
from tailrace.broker.serving.buffers import START_BYTES, Account
from tailrace.broker.serving.express import Express
from tailrace.broker.serving.inbox import Inbox
from tailrace.broker.serving.outbox import Outbox, Slot, Slots
from tailrace.broker.serving.turns import RUN_BYTES
from tailrace.model.errors import ProtocolError
from tailrace.model.ports import Bytes, FileSlice, Stream
from tailrace.model.security import ANONYMOUS
from tailrace.wire.schema import Message

if TYPE_CHECKING:
    from tailrace.broker.serving.acceptor import Acceptor
    from tailrace.broker.serving.commits.taking import Short
    from tailrace.broker.serving.kafka import KafkaProtocol
    from tailrace.broker.serving.measuring import Measurement

_unpack_size = Struct(">i").unpack_from
_PRODUCE_KEY = bytes(2)
# The smallest request header: api key, version, correlation id.
REQUEST_MIN_BYTES = 8
# Requests through the general path before other connections have their turn.
_REQUESTS_PER_TURN = 32
# What a connection waits for: memory, or the disk to catch up with what producers wrote; the end of a mute.
_FOR_ROOM, _FOR_UNMUTE = 1, 2


class KafkaConnection:
    __slots__ = (
        "_acceptor",
        "_express",
        "_held_by",
        "_is_closing",
        "_is_reading",
        "_mute",
        "_outbox",
        "_protocol",
        "_queued_bytes",
        "_receives_in_turn",
        "_resume_is_scheduled",
        "_seen_sent_bytes",
        "_slots",
        "_stream",
        "_waits",
        "address",
        "inbox",
        "is_closed",
        "last_active_ms",
        "listener",
        "peer",
        "principal",
    )

    def __init__(
        self, stream: Stream, listener: BoundListener, protocol: KafkaProtocol, acceptor: Acceptor, account: Account
    ) -> None:
        self.peer, self.address = stream.peer, account
        self.listener = listener
        self.principal = ANONYMOUS  # Until whoever made it says otherwise.
        self.is_closed = False
        self._stream = stream
        self._protocol = protocol
        self._acceptor = acceptor
        self.inbox = Inbox(protocol.buffers, account, hint_max_bytes=protocol.size_hint_max_bytes)
        self._outbox = Outbox(
            stream, protocol.background, protocol.turns, self, on_drained=self._resume, on_broken=self._on_broken
        )
        self._slots = Slots(self._outbox)
        self._express = None
        if protocol.has_express:
            self._express = Express(protocol.services, self._outbox, self._slots, self._keep_run, self)
        self.last_active_ms = protocol.clock.monotonic_ms()
        self._mute: Mute | None = None
        self._waits = 0  # For what, as bits: no request is taken meanwhile.
        self._queued_bytes = 0  # Bytes of answers, since there was last none to send.
        self._seen_sent_bytes = 0
        # The parked Fetch or the waiting handler that holds later requests back.
        self._held_by: Pending[Any] | Future[Any] | None = None
        self._is_reading = True
        self._is_closing = False  # Takes no more requests; closes when the earlier answers are sent.
        self._resume_is_scheduled = False
        self._receives_in_turn = False  # A piece of a large request waits to be received.
        stream.watch_reads(self._on_readable)

    @property
    def waits_for_client(self) -> bool:
        """It is the client's turn: to read its answers or to send a request. One that stops in the middle of either is
        no better than one that says nothing."""
        if not self._outbox.is_empty:
            return self._outbox.is_blocked
        return self._held_by is None and not self._slots.count and not self._waits

    @property
    def waits_for_memory(self) -> bool:
        return self._protocol.buffers.is_waiting(self._on_waited)

    @property
    def has_lost_client(self) -> bool:
        """It waits for memory, and its client has gone without sending the rest."""
        left_bytes = self._stream.left_bytes() if self.waits_for_memory else None
        return left_bytes is not None and left_bytes < self.inbox.missing_bytes

    @property
    def is_held_back(self) -> bool:
        """No request is taken now, were one here: what is missing of it is not waited for."""
        return self._resume_is_scheduled or not self._may_take()

    def note_progress(self, now_ms: float) -> None:
        if self._outbox.sent_bytes != self._seen_sent_bytes:
            self._seen_sent_bytes = self._outbox.sent_bytes
            self.last_active_ms = now_ms

    # ---- receiving

    def _on_readable(self) -> None:
        if self._resume_is_scheduled:
            return
        inbox = self.inbox
        missing_bytes = inbox.missing_bytes if inbox.end else 0
        if inbox.expected_bytes(missing_bytes) > START_BYTES and not self._protocol.turns.admits_piece(self):
            self._receives_in_turn = True
            self._wait_for_turn()
            return
        self._receive(missing_bytes)

    def _receive(self, missing_bytes: int) -> None:
        """`missing_bytes` of a request of which a part is here."""
        inbox = self.inbox
        if inbox.buffer is None:
            inbox.borrow()
        end = inbox.end
        if end == len(inbox.view):
            self._stop_reading()  # Held back, and the buffer is full.
            return
        try:
            received = self._stream.recv_into(inbox.room(missing_bytes, self._protocol.turn_max_bytes))
        except (BlockingIOError, InterruptedError):
            self._tidy()
            return
        except OSError as error:
            self._on_broken(error)
            return
        if received == 0:
            self.close()
            return
        inbox.end = end + received
        self.last_active_ms = now_ms = self._protocol.clock.monotonic_ms()
        if self._may_take():
            self._serve(now_ms)

    def _may_take(self) -> bool:
        return (
            self._held_by is None
            and self._outbox.is_empty
            and not self._is_closing
            and not self._waits
            and self._slots.count < self._protocol.slots_max
            and self._queued_bytes < self._protocol.answers_max_bytes
        )

    def _serve(self, now_ms: float) -> None:
        inbox = self.inbox
        start = inbox.start
        try:
            self._take_frames(now_ms)
            inbox.last_taken_bytes = inbox.start - start
        except Exception as error:
            # Dispatch answers what handlers raise; this is a bug around them, and must not leave the client waiting.
            self._protocol.report_bug(self, error)
            self._is_closing = True
        if not self.is_closed:
            if inbox.start < inbox.end and (inbox.start > start or inbox.arrival is None):
                inbox.arrival = Arrival(now_ms)  # Another request has begun.
            self._tidy()
            self._flush()
            self._close_if_finished()

    def _take_frames(self, now_ms: float) -> None:
        """Takes whole frames until there are none left, one holds the rest back, or the turn is over."""
        inbox = self.inbox
        buffer, view, end = inbox.buffer, inbox.view, inbox.end
        if buffer is None:
            return
        protocol = self._protocol
        request_max_bytes, slots_max = protocol.request_max_bytes, protocol.slots_max
        flusher, slots = protocol.services.replicas.flusher, self._slots
        turn_ms = protocol.turns.turn_ms
        if end - inbox.start > RUN_BYTES:
            turn_ms = protocol.turns.begin_run(self, -inbox.missing_bytes)
        turn_ends_ms = now_ms + turn_ms
        run_end = end if turn_ms else min(end, end + inbox.missing_bytes)
        for _ in range(_REQUESTS_PER_TURN):
            position = inbox.start
            if self._express is not None:
                inbox.start = self._express.take(buffer, view, position, run_end)
                if inbox.start == end or slots.count >= slots_max or self._waits:
                    break
                if inbox.start > position:
                    if turn_ms and protocol.clock.monotonic_ms() < turn_ends_ms:
                        continue
                    if inbox.missing_bytes <= 0:
                        self._wait_for_turn()
                    break
            if end - position < 4:
                break
            (size,) = _unpack_size(buffer, position)
            if not REQUEST_MIN_BYTES <= size <= request_max_bytes:
                self._refuse(protocol.describe_size(size, bytes(view[position : position + 16])))
                break
            frame_end = position + 4 + size
            if frame_end > end:
                break
            if flusher.is_saturated and buffer[position + 4 : position + 6] == _PRODUCE_KEY:
                self._wait_for_room(flusher.wait)
                break
            inbox.start = frame_end
            self._take(view[position + 4 : frame_end])
            if frame_end == end or self._held_by is not None or self._is_closing or self._waits:
                break
            if slots.count >= slots_max:
                break
            if self._queued_bytes >= protocol.answers_max_bytes or protocol.clock.monotonic_ms() > turn_ends_ms:
                self._wait_for_turn()
                break
        else:
            self._wait_for_turn()

    def _take(self, frame: memoryview) -> None:
        try:
            context, result = self._protocol.dispatcher.dispatch(frame, self)
            if result is None or isinstance(result, Message | Pending):
                self._take_result(context, result)
                return
            size_bytes = len(frame)
            self._protocol.buffers.hold(size_bytes, self.inbox.account)
            self._held_by = task = ensure_future(result)
            task.add_done_callback(lambda done: self._on_handler_done(context, done, size_bytes))
        except ProtocolError as error:
            self._refuse(str(error))
        except UnanswerableError:
            self._is_closing = True

    def _take_result(self, context: RequestContext, result: Message | Pending[Any] | None) -> None:
        if isinstance(result, Message):
            self._answer(context, result)
            self._is_closing |= context.is_last
        elif result is not None:
            self._keep_place(context, result)
        else:
            self._protocol.dispatcher.note_unanswered(context)
        if context.toll is not None and not isinstance(result, Message):
            self.mute(context.toll.settle() if result is None else context.toll.taken_ms())

    def _on_handler_done(self, context: RequestContext, task: Future[Any], size_bytes: int) -> None:
        self._held_by = None
        self._protocol.buffers.let_go(size_bytes, self.inbox.account)
        if self.is_closed:
            if not task.cancelled() and task.exception() is None and isinstance(task.result(), Pending):
                task.result().abandon()
            return
        if task.cancelled():
            self._is_closing = True
        elif (error := task.exception()) is not None:
            self._is_closing = True  # What is a bug was reported by dispatch already.
            if isinstance(error, ProtocolError):
                self._refuse(str(error))
        else:
            self._take_result(context, task.result())
        if self.inbox.buffer is None or self._is_closing:
            self._resume()
        else:
            # Its work was done outside of any turn, so the next request waits for one.
            self._flush()
            self._wait_for_turn()

    # ---- answering

    def _encode(self, context: RequestContext, answer: Message) -> list[Bytes | FileSlice] | None:
        """None for an answer that does not fit its own declaration, which is a bug: nothing may follow it then, for its
        place stays empty."""
        try:
            parts = self._protocol.dispatcher.encode(context, answer)
            self._queued_bytes += sum([len(part) for part in parts if not isinstance(part, FileSlice)])
            if context.toll is not None:
                self.mute(context.toll.throttle_ms)
            return parts
        except Exception as error:
            self._protocol.report_bug(self, error)
            self._is_closing = True
            return None

    def _answer(self, context: RequestContext, answer: Message) -> None:
        parts = self._encode(context, answer)
        if parts is not None:
            self._slots.put(parts, context.measurement)

    def _keep_run(self, answers: Sequence[Bytes], pending: Short | None, measurement: Measurement | None) -> None:
        """Keeps answers of the express lane: they are known, and wait for those before them or to be confirmed."""
        self._queued_bytes += sum(map(len, answers))
        parts: list[Bytes | FileSlice] | None = [b"".join(answers)] if pending is None else None
        slot = Slot(pending, parts, count=len(answers), measurement=measurement)
        self._slots.add(slot)
        if pending is not None:
            encode = pending.encode
            pending.deliver_to(lambda given: self._settle_slot(slot, [encode(given)]))

    def _keep_place(self, context: RequestContext, pending: Pending[Any]) -> None:
        if pending.answer is not None:
            self._answer(context, pending.answer)
            return
        slot = Slot(pending, measurement=context.measurement)
        self._slots.add(slot)
        if pending.holds_next and not pending.is_over:
            self._held_by = pending
        pending.deliver_to(lambda answer: self._on_answer(context, slot, answer))

    def _on_answer(self, context: RequestContext, slot: Slot, answer: Message) -> None:
        """An answer that was waited for; may come at any moment but from within a handler."""
        if not self.is_closed:
            self._settle_slot(slot, self._encode(context, answer))

    def _settle_slot(self, slot: Slot, parts: list[Bytes | FileSlice] | None) -> None:
        if self.is_closed:
            return
        is_held = self._held_by is slot.pending
        if is_held:
            self._held_by = None
        self._slots.settle(slot, parts)
        # The last answer that a client waits for goes out at once: no other can join it.
        if is_held or (not self._slots.count and self.inbox.buffer is None):
            self._resume()
        else:
            self._resume_soon()

    def _resume_soon(self) -> None:
        """Many answers may come in one turn: they are sent together, at its end."""
        if not self._resume_is_scheduled or self._protocol.turns.leave(self, self):
            self._resume_is_scheduled = True
            self._protocol.call_soon(self.take_turn)

    def _wait_for_turn(self) -> None:
        """It has more requests, and there are others."""
        if not self._resume_is_scheduled:
            self._resume_is_scheduled = True
            self._protocol.turns.join(self, self)

    def take_turn(self) -> bool:
        self._resume_is_scheduled = False
        receives, self._receives_in_turn = self._receives_in_turn, False
        if not self.is_closed:
            self._resume()
        if receives and self._is_reading and not self._resume_is_scheduled and not self.is_closed:
            self._receive(self.inbox.missing_bytes)
        return receives

    def _resume(self) -> None:
        """Sends what is there, then takes up requests that were held back."""
        self._flush()
        if self.is_closed:
            return
        if self.inbox.buffer is not None and self._may_take():
            self._serve(self._protocol.clock.monotonic_ms())
        self._close_if_finished()
        if not self.is_closed and not self._is_reading and self._may_take():
            self._is_reading = True
            self._stream.watch_reads(self._on_readable)

    def _flush(self) -> None:
        self._outbox.flush()
        if not self._slots.count and self._outbox.is_empty:
            self._queued_bytes = 0

    # ---- waiting, and the buffer

    @property
    def is_muted(self) -> bool:
        return self._mute is not None

    def mute(self, throttle_ms: int) -> None:
        if throttle_ms <= 0 or self.is_closed:
            return
        if self._mute is None:
            self._mute = Mute(self.inbox, self._on_unmuted)
            self._waits |= _FOR_UNMUTE
            self._stop_reading()
            self._protocol.call_soon(self._tidy)  # Later, since somebody may be looking at the buffer.
        self._mute.extend(throttle_ms)

    def _on_unmuted(self) -> None:
        self._mute = None
        self._waits &= ~_FOR_UNMUTE
        self.last_active_ms = self._protocol.clock.monotonic_ms()
        self._resume()

    def _wait_for_room(self, wait: Callable[[Callable[[], None]], None]) -> None:
        self._waits |= _FOR_ROOM
        self._stop_reading()
        wait(self._on_waited)

    def _on_waited(self) -> None:
        self._waits &= ~_FOR_ROOM
        if not self.is_closed:
            self._tidy()
            self._resume()

    def _tidy(self) -> None:
        """Gives an empty buffer back, and with a mute any; makes room for the rest of a frame in a full one."""
        inbox = self.inbox
        if inbox.buffer is None:
            return
        if inbox.start == inbox.end:
            inbox.give_back()
        elif self._mute is not None:
            self._mute.set_aside()
        elif not self._resume_is_scheduled:
            size = len(inbox.view)
            if inbox.start > size // 2 or (inbox.start and inbox.end == size):
                inbox.compact()
            elif inbox.end == size and inbox.missing_bytes > 0 and self._may_take():
                self._make_room()

    def _make_room(self) -> None:
        try:
            has_grown = self.inbox.grow()
        except OSError as error:
            self._on_broken(error)
            return
        if not has_grown:
            self._wait_for_room(self.inbox.wait_for_memory)

    # ---- the end

    def _stop_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._stream.watch_reads(None)

    def _refuse(self, problem: str) -> None:
        self._acceptor.report("closing a connection that broke the protocol", peer=self.peer, received=problem)
        self._is_closing = True

    def _on_broken(self, error: OSError) -> None:
        self._protocol.report_broken(self, error)
        self.close()

    def _close_if_finished(self) -> None:
        if self._is_closing and self._held_by is None and not self._slots.count and self._outbox.is_empty:
            self.close()

    def finish(self) -> None:
        self._is_closing = True
        if isinstance(self._held_by, Pending):
            self._held_by.hurry()
        self._resume_soon()

    def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._stream.close()
        self._outbox.close()
        self._protocol.turns.leave(self, self)
        self._protocol.buffers.forget(self._on_waited)
        self._protocol.buffers.note_dropped(self._queued_bytes)
        self._protocol.services.replicas.flusher.stop_waiting(self._on_waited)
        self._slots.drop()
        if self._mute is not None:
            self._mute.cancel()
        self.inbox.give_back()
        self._acceptor.forget(self)
        self._protocol.services.departures.tell(self.peer)
