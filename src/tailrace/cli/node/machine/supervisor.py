"""The supervisor of nodes on one machine: one process a node, all forked from this one. They are a cluster (`up`) or a
unit of brokers in one (`broker --processes`).

Everything a node imports is imported here first, once: a forked node shares that memory and starts in milliseconds. So
this process has no event loop and no thread (a fork would copy their state), only a selector.

A node that dies is restarted after a pause, which grows while it dies early; its death is logged, and of brokers'
deaths the controller is told, together where they are, by a process that ends then. At the first start a node that does
not come up ends the whole. SIGINT and SIGTERM stop the brokers, then the controllers, which the brokers need until
their last moment; a second signal kills them all. SIGHUP restarts one after the other (`rolling`). Requests come over
the socket of `real.supervisor`. A service manager hears of the supervisor alone.
"""

from __future__ import annotations

import asyncio
import gc
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from tailrace.broker.cluster.deaths import Incarnation, find_dead, find_way, report_deaths
from tailrace.cli import CommandError
from tailrace.cli.logs import label_log_lines
from tailrace.cli.node.machine.preload import preload, preload_stores
from tailrace.cli.node.machine.requests import Reply, Requests
from tailrace.cli.node.machine.rolling import Rolling
from tailrace.cli.node.machine.supervised import RESTART_PAUSE_S, Node, Supervised
from tailrace.cli.node.process import list_metrics, run_broker
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.real.disk import RealDisk
from tailrace.real.ports import real_ports
from tailrace.real.systemd import ServiceManager

_log = events.logger("supervisor")


_RESTART_PAUSE_MAX_S = 10.0
# A node that lived so long did not die of its start: the next pause is short again.
_LONG_LIFE_S = 30.0
STOP_TIMEOUT_S = 20.0
# Brokers that die within this time of each other died together, as those do that somebody kills all at once: the
# controller must not take the last of them for one that was alone in sync.
_TOGETHER_S = 0.1
# What tells a node to stop cleanly; nobody else sends it.
_STOP = signal.SIGUSR1


class Supervisor:
    def __init__(
        self,
        nodes: Supervised,
        *,
        on_ready: Callable[[str], None],
        on_stop: Callable[[], None] | None = None,
        logs: str | None = None,
    ) -> None:
        """`on_stop` is called while the brokers still serve."""
        self._supervised = nodes
        self._on_ready = on_ready
        self._on_stop = on_stop
        self._logs = logs
        self._nodes = {plan.name: Node(plan) for plan in nodes.node_plans()}
        # The dead of whom the controller is told next, and when; and processes that tell it, which end within seconds.
        self._dead: list[Incarnation] = []
        self._tell_at: float | None = None
        self._messengers: list[int] = []
        self._selector = selectors.DefaultSelector()
        self._signals, self._signals_writer = socket.socketpair()
        # Ends with this process, however it ends; the nodes watch the other side.
        self._life, self._life_writer = os.pipe()
        self._stop_count = 0
        self._was_ready = False
        self._timer: tuple[float, Callable[[], None]] | None = None
        self._manager = ServiceManager.connect(os.environ, self._call_later)
        self._rolling: Rolling | None = None
        self._is_told_to_roll = False
        self._failure: str | None = None

    def run(self) -> int:
        """Returns the exit code when everything has stopped. Raises CommandError if a node does not come up."""
        try:
            self._requests = Requests(self._supervised.socket_name, self._selector, self._handle_request)
        except OSError:
            where = self._supervised.folder
            raise CommandError(f"another `{self._supervised.command}` runs the cluster in {where}") from None
        self._watch_signals()
        self._preload()
        # The collector would write into every object it looks at, and so copy the memory that all nodes share.
        gc.collect()
        gc.freeze()
        for node in self._nodes.values():
            self._spawn(node)
        try:
            self._run_until(lambda: self._stop_count > 0 or self._failure is not None)
            if self._manager is not None:
                self._manager.tell_stopping()
            if self._on_stop is not None:
                self._on_stop()
            for is_controller in (False, True):
                self._stop_all(is_controller)
        finally:
            self._kill_all()
        if self._failure is not None:
            raise CommandError(self._failure)
        return 0

    def _preload(self) -> None:
        preload(is_secure=self._supervised.is_secure)
        if self._supervised.is_secure and self._supervised.is_loopback:
            plans = [node.plan for node in self._nodes.values()]
            # One of each kind: all brokers have the same, and all controllers.
            kinds = {plan.is_broker: plan for plan in plans}
            try:
                preload_stores([self._supervised.config_of(plan) for plan in kinds.values()])
            except KafkaError as error:
                raise CommandError(error.message) from None

    # ---- the loop

    def _watch_signals(self) -> None:
        for end in (self._signals, self._signals_writer):
            end.setblocking(False)
        signal.set_wakeup_fd(self._signals_writer.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._count_stop)
        # Without a handler of ours the signal would not wake the selector.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGHUP, self._begin_rolling)
        self._selector.register(self._signals, selectors.EVENT_READ, self._drain_signals)

    def _count_stop(self, *_: object) -> None:
        self._stop_count += 1

    def _begin_rolling(self, *_: object) -> None:
        self._is_told_to_roll = True

    def _drain_signals(self) -> None:
        try:
            while self._signals.recv(4096):
                pass
        except BlockingIOError:
            pass

    def _run_until(self, is_done: Callable[[], bool]) -> None:
        while not is_done():
            for key, _ in self._selector.select(self._wait_s()):
                key.data()
            self._reap()
            self._keep_times()
            self._keep_rolling()
            self._forget_removed()

    def _wait_s(self) -> float | None:
        times = [at for node in self._nodes.values() for at in (node.restart_at, node.kill_at) if at is not None]
        if self._timer is not None:
            times.append(self._timer[0])
        if self._tell_at is not None:
            times.append(self._tell_at)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        """One at a time: for the service manager."""
        self._timer = time.monotonic() + seconds, callback

    def _keep_times(self) -> None:
        now = time.monotonic()
        if self._timer is not None and self._timer[0] <= now:
            (_, callback), self._timer = self._timer, None
            callback()
        if self._tell_at is not None and self._tell_at <= now:
            self._tell_deaths()
        for node in self._nodes.values():
            if node.restart_at is not None and node.restart_at <= now:
                self._spawn(node)
            if node.kill_at is not None and node.kill_at <= now and node.process_id is not None:
                _log.error("killed a node that did not stop", node=node.name, timeout_s=STOP_TIMEOUT_S)
                node.kill_at = None
                os.kill(node.process_id, signal.SIGKILL)

    def _keep_rolling(self) -> None:
        if self._is_told_to_roll and self._was_ready:
            self._is_told_to_roll = False
            if self._rolling is not None:
                _log.warning("a rolling restart is under way already")
            else:
                self._roll()
        if self._rolling is None or self._stop_count:
            return
        chosen = self._rolling.decide_stop(self._nodes.values())
        if chosen is not None:
            self._stop(chosen)
        if self._rolling.is_over:
            self._rolling = None
            _log.info("all nodes were restarted")

    def _roll(self) -> None:
        try:
            self._supervised.read_again()
        except CommandError as error:
            _log.error("nothing is restarted: the settings are wrong", cause=error)
            return
        for plan in self._supervised.node_plans():
            self._nodes[plan.name].plan = plan
        self._rolling = Rolling(self._nodes.values())

    def _forget_removed(self) -> None:
        for node in [node for node in self._nodes.values() if node.is_removed and node.process_id is None]:
            del self._nodes[node.name]
            self._list_metrics(is_told=False)

    # ---- the life of a node

    def _spawn(self, node: Node) -> None:
        node.restart_at = None
        node.started = time.monotonic()
        reader, writer = os.pipe()
        process_id = os.fork()
        if process_id == 0:
            self._become(node, writer)
        os.close(writer)
        node.process_id, node.ready_pipe = process_id, reader
        self._selector.register(reader, selectors.EVENT_READ, lambda: self._read_ready(node))

    def _become(self, node: Node, ready_pipe: int) -> NoReturn:
        """The new process: from here on it is a node and nothing else."""
        exit_code = 1
        try:
            self._leave_supervisor(node)
            if self._logs is not None:
                _redirect_stderr(f"{self._logs}/{node.name}.log")
            label_log_lines(node.name)

            def tell_ready(bootstrap: str, metrics: Sequence[str]) -> None:
                os.write(ready_pipe, f"ready {' '.join([bootstrap, *metrics[:1]])}\n".encode())

            def tell_in_sync() -> None:
                os.write(ready_pipe, b"in sync\n")
                os.close(ready_pipe)

            exit_code = run_broker(
                self._supervised.config_of(node.plan),
                on_ready=tell_ready,
                on_in_sync=tell_in_sync,
                stop_signals=(_STOP,),
                supervisor=self._life,
            )
        except CommandError as error:
            print(f"tailrace: {node.name}: {error}", file=sys.stderr)
        except BaseException:
            traceback.print_exc()
        finally:
            # Nothing of the supervisor's may run in the node: no `finally` further up, no exit handler.
            sys.stderr.flush()
            os._exit(exit_code)

    def _leave_supervisor(self, own: Node | None = None) -> None:
        """Closes what belongs to the supervisor; else its sockets and pipes would outlive it here. Ctrl-C on a
        terminal, and a service manager's SIGTERM, reach its processes too; it alone decides who stops when."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        self._selector.close()
        self._requests.close()
        self._signals.close()
        self._signals_writer.close()
        os.close(self._life_writer)
        for node in self._nodes.values():
            if node is not own and node.ready_pipe is not None:
                os.close(node.ready_pipe)

    def _read_ready(self, node: Node) -> None:
        """One or both of the lines that a node tells of itself, or the end of the pipe."""
        assert node.ready_pipe is not None, "only an open pipe is watched"
        lines = os.read(node.ready_pipe, 4096).decode().splitlines()
        if not lines or "in sync" in lines:
            self._close_ready_pipe(node)
        for line in lines:
            word, _, told = line.partition(" ")
            if word == "ready":
                self._note_ready(node, *told.split(" "))
            else:
                node.is_in_sync = True

    def _note_ready(self, node: Node, bootstrap: str, metrics: str = "") -> None:
        node.is_ready = True
        # The first listener is that of clients.
        node.bootstrap, node.metrics = bootstrap.partition(",")[0], metrics
        is_first = not self._was_ready and all(each.is_ready for each in self._nodes.values())
        # Before anybody is told: who waits for a node may look for it in the list next.
        if is_first or self._was_ready:
            self._list_metrics(is_told=is_first)
        for reply in node.waiting_ready:
            reply({"node": node.facts()})
        node.waiting_ready.clear()
        if is_first:
            self._was_ready = True
            bootstrap = ",".join(each.bootstrap for each in self._nodes.values() if each.plan.is_broker)
            self._on_ready(bootstrap)
            if self._manager is not None:
                self._manager.tell_ready(f"{len(self._nodes)} nodes at {bootstrap}")

    def _list_metrics(self, *, is_told: bool) -> None:
        urls = {node.name: node.metrics for node in self._nodes.values() if node.metrics}
        if urls:
            list_metrics(self._supervised.folder, urls, is_told=is_told)

    def _close_ready_pipe(self, node: Node) -> None:
        if node.ready_pipe is not None:
            self._selector.unregister(node.ready_pipe)
            os.close(node.ready_pipe)
            node.ready_pipe = None

    def _reap(self) -> None:
        for node in self._nodes.values():
            if node.process_id is not None:
                process_id, status = os.waitpid(node.process_id, os.WNOHANG)
                if process_id:
                    self._note_death(node, os.waitstatus_to_exitcode(status))
        self._messengers = [each for each in self._messengers if not os.waitpid(each, os.WNOHANG)[0]]

    def _note_death(self, node: Node, exit_code: int) -> None:
        if node.ready_pipe is not None:
            self._read_ready(node)  # It may have been ready for an instant.
        lived_s = time.monotonic() - node.started
        was_ready, node.is_ready, node.is_in_sync = node.is_ready, False, False
        node.process_id = node.kill_at = None
        if node.plan.is_broker and exit_code and not self._stop_count:
            self._remember_death(node)
        for reply in node.waiting_dead:
            reply({"node": node.facts(), "exit_code": exit_code})
        for reply in node.waiting_ready:
            reply({"error": f"{node.name} {_death_text(exit_code)} before it was ready"})
        node.waiting_dead.clear()
        node.waiting_ready.clear()
        if self._stop_count or node.is_held:
            return
        if not exit_code and self._rolling is not None and self._rolling.is_restarting(node):
            node.restart_at = time.monotonic()
            return
        if not self._was_ready and not was_ready:
            self._failure = f"{node.name} {_death_text(exit_code)} before it was ready; what it said stands above"
            return
        if lived_s > _LONG_LIFE_S:
            node.pause_s = RESTART_PAUSE_S
        node.restart_at = time.monotonic() + node.pause_s
        how = _death_text(exit_code)
        _log.error(f"a node {how}", node=node.name, lived_s=round(lived_s, 1), restart_after_s=node.pause_s)
        node.pause_s = min(node.pause_s * 2, _RESTART_PAUSE_MAX_S)

    def _remember_death(self, node: Node) -> None:
        """Before it is started again: then its folders would tell of a live process."""
        dead = find_dead(RealDisk(), self._supervised.config_of(node.plan).log_dirs, node.plan.node_id)
        if dead is not None:
            self._dead.append(dead)
            self._tell_at = self._tell_at or time.monotonic() + _TOGETHER_S

    def _tell_deaths(self) -> None:
        dead, self._dead, self._tell_at = self._dead, [], None
        process_id = os.fork()
        if process_id == 0:
            self._become_messenger(dead)
        self._messengers.append(process_id)

    def _become_messenger(self, dead: Sequence[Incarnation]) -> NoReturn:
        try:
            self._leave_supervisor()
            code = asyncio.run(self._report(dead))
            if code not in (ErrorCode.NONE, ErrorCode.STALE_BROKER_EPOCH):
                nodes = [each.node_id for each in dead]
                _log.warning("no controller could be told that brokers are dead", nodes=nodes, cause=code.name)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(0)

    async def _report(self, dead: Sequence[Incarnation]) -> ErrorCode:
        """With the rights of the dead: all brokers have the same."""
        config = next(self._supervised.config_of(node.plan) for node in self._nodes.values() if node.plan.is_broker)
        return await report_deaths(await find_way(config, real_ports()), self._supervised.controllers(), dead)

    # ---- the end

    def _stop(self, node: Node) -> None:
        node.restart_at = None
        if node.process_id is not None:
            os.kill(node.process_id, _STOP)
            os.kill(node.process_id, signal.SIGCONT)
            node.kill_at = time.monotonic() + STOP_TIMEOUT_S

    def _stop_all(self, is_controller: bool) -> None:
        chosen = [node for node in self._nodes.values() if node.plan.is_controller == is_controller]
        for node in chosen:
            node.is_held = True
            self._stop(node)
        self._run_until(lambda: all(node.process_id is None for node in chosen) or self._stop_count > 1)

    def _kill_all(self) -> None:
        for node in self._nodes.values():
            if node.process_id is not None:
                os.kill(node.process_id, signal.SIGKILL)
                os.waitpid(node.process_id, 0)
                node.process_id = None
        for process_id in self._messengers:
            os.kill(process_id, signal.SIGKILL)
            os.waitpid(process_id, 0)
        self._messengers.clear()

    # ---- requests

    def _handle_request(self, request: Mapping[str, Any], reply: Reply) -> None:
        """Answers now, or lets the answer wait for a node. Raises CommandError for what cannot be done."""
        action = request.get("do")
        if action == "nodes":
            reply({"nodes": [node.facts() for node in self._nodes.values()]})
        elif action == "add":
            plan = self._supervised.add_broker()
            node = self._nodes[plan.name] = Node(plan)
            self._await_ready(node, reply)
        elif action == "start":
            self._await_ready(self._node(request), reply)
        elif action in ("stop", "kill", "remove"):
            self._end(self._node(request), str(action), reply)
        else:
            raise CommandError(f"a supervisor cannot {action}")

    def _node(self, request: Mapping[str, Any]) -> Node:
        name = str(request.get("node"))
        if name not in self._nodes:
            raise CommandError(f"there is no {name}: the nodes are {', '.join(self._nodes)}")
        return self._nodes[name]

    def _await_ready(self, node: Node, reply: Reply) -> None:
        node.is_held = False
        if node.process_id is None:
            self._spawn(node)
        if node.is_ready:
            reply({"node": node.facts()})
        else:
            node.waiting_ready.append(reply)

    def _end(self, node: Node, action: str, reply: Reply) -> None:
        if action == "remove":
            self._supervised.remove_broker(node.plan)
            node.is_removed = True
        node.is_held = True
        if node.process_id is None:
            node.restart_at = None
            reply({"node": node.facts(), "exit_code": None})
            return
        node.waiting_dead.append(reply)
        if action == "kill":
            os.kill(node.process_id, signal.SIGKILL)
        else:
            self._stop(node)


def _death_text(exit_code: int) -> str:
    return f"was killed by {signal.Signals(-exit_code).name}" if exit_code < 0 else f"ended with exit code {exit_code}"


def _redirect_stderr(path: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 2)
    os.close(descriptor)
