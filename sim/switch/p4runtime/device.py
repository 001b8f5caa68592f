"""The device behind the calls: the program in use, a program that waits for COMMIT, and notifications to controllers."""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeAlias

from netsum_common.errors import NetsumError
from netsum_common.p4rt import p4runtime_pb2
from sim.switch import Digest
from sim.switch.p4runtime.forwarding_state import forwarding_state
from sim.switch.p4runtime.packet_io import packet_in, packet_out
from sim.switch.p4runtime.pipeline import ForwardingPipeline
from sim.switch.p4runtime.status_errors import (
    BatchError,
    Code,
    P4RuntimeError,
    failed_precondition,
    invalid,
    not_found,
)
from sim.switch.ports.chassis import Chassis

UPDATES_PER_TURN = 64  # Updates of a batch after which packets may pass.

TICK_S = 0.05  # How often time-outs of digests and table entries are checked.

WAITING_NOTICES = 4096
"""Batches of packets and digests that may wait for controllers; further ones are dropped."""

STOP_TIMEOUT_S = 5.0

_LOG = logging.getLogger(__name__)

_Request = p4runtime_pb2.SetForwardingPipelineConfigRequest
_WriteRequest = p4runtime_pb2.WriteRequest
_Wanted = p4runtime_pb2.GetForwardingPipelineConfigRequest

_Event: TypeAlias = tuple[ForwardingPipeline, list[bytes], list[Digest]]


class _Tap:
    """Receives the messages of one pipeline's switch, and queues them."""

    def __init__(self, pipeline: ForwardingPipeline, events: "queue.SimpleQueue[_Event]") -> None:
        self._pipeline = pipeline
        self._events = events

    def packets_in(self, frames: list[bytes]) -> None:
        if self._events.qsize() < WAITING_NOTICES:
            self._events.put((self._pipeline, frames, []))

    def digests(self, samples: list[Digest]) -> None:
        if self._events.qsize() < WAITING_NOTICES:
            self._events.put((self._pipeline, [], samples))


class Device:
    """A chassis under P4Runtime's control."""

    def __init__(self, chassis: Chassis, cache_dir: Path | None = None) -> None:
        self._chassis = chassis
        self._cache_dir = cache_dir
        self._active: ForwardingPipeline | None = None
        self._saved: ForwardingPipeline | None = None
        # Batches and configurations are carried out one after the other; the chassis' turn is taken for parts of them.
        self._control = threading.Lock()
        self.notify: Callable[[Any], None] = lambda message: None
        """Sends a `StreamMessageResponse` to the primary controllers."""
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._notices = threading.Thread(target=self._run_notices, name="notices", daemon=True)

    def start(self) -> None:
        """Begin to notify controllers of packets, digests and idle entries."""
        self._notices.start()

    def stop(self) -> None:
        """Stop notifying controllers."""
        self._stopping.set()
        self._notices.join(STOP_TIMEOUT_S)

    # -- configuration

    def set_config(self, action: int, config: Any | None) -> None:
        """Carry out a `SetForwardingPipelineConfig`.

        Raises P4RuntimeError: INVALID_ARGUMENT: there is no configuration, or it cannot be realized. NOT_FOUND: COMMIT
        without a saved one.
        """
        with self._control:
            if action == _Request.COMMIT:
                self._commit(config)
                return
            if action not in (
                _Request.VERIFY,
                _Request.VERIFY_AND_SAVE,
                _Request.VERIFY_AND_COMMIT,
                _Request.RECONCILE_AND_COMMIT,
            ):
                raise invalid("the action is not set; use VERIFY_AND_COMMIT to install a program")
            if config is None or not config.p4_device_config:
                raise invalid(
                    "the configuration is missing; give a P4Info and the BMv2 JSON of the same program"
                )
            pipeline = self._made(config)
            if action == _Request.VERIFY:
                return
            if action == _Request.VERIFY_AND_SAVE:
                self._saved = pipeline
                return
            if action == _Request.RECONCILE_AND_COMMIT and self._active is not None:
                pipeline = self._reconciled(self._active, pipeline)
            self._install(pipeline)

    def get_config(self, wanted: int) -> Any:
        """Return the `ForwardingPipelineConfig` in use, or the parts of it that are wanted.

        Raises P4RuntimeError: FAILED_PRECONDITION: there is none, as on BMv2.
        """
        held = self._current().config
        answer = p4runtime_pb2.ForwardingPipelineConfig()
        if wanted in (_Wanted.ALL, _Wanted.P4INFO_AND_COOKIE):
            answer.p4info.CopyFrom(held.p4info)
        if wanted in (_Wanted.ALL, _Wanted.DEVICE_CONFIG_AND_COOKIE):
            answer.p4_device_config = held.p4_device_config
        if held.HasField("cookie"):
            answer.cookie.CopyFrom(held.cookie)
        return answer

    def _commit(self, config: Any | None) -> None:
        if config is not None:
            raise invalid("COMMIT takes no configuration; use VERIFY_AND_COMMIT")
        if self._saved is None:
            raise not_found("there is no saved configuration; use VERIFY_AND_SAVE first")
        self._install(self._saved)

    def _install(self, pipeline: ForwardingPipeline) -> None:
        with self._chassis.turn:
            try:
                self._chassis.install(pipeline.switch, _Tap(pipeline, self._events))
            except NetsumError as error:
                raise failed_precondition(str(error)) from None
            self._active, self._saved = pipeline, None
            self._log(pipeline, None)

    def resume(self, config: bytes, updates: Sequence[bytes]) -> None:
        """Apply the configuration and the updates that an earlier process of this switch was given.

        Raises P4RuntimeError: the configuration cannot be realized.
        """
        with self._control:
            pipeline = self._made(p4runtime_pb2.ForwardingPipelineConfig.FromString(config))
            for update in updates:
                _attempt(pipeline, p4runtime_pb2.Update.FromString(update))
            self._install(pipeline)

    def _made(self, config: Any) -> ForwardingPipeline:
        return ForwardingPipeline(
            config, self._chassis.now_ns, lambda program: self._chassis.engine(program, self._cache_dir)
        )

    def _log(self, pipeline: ForwardingPipeline, updates: Sequence[Any] | None) -> None:
        """Note what controllers wrote; None: everything."""
        log = self._chassis.log
        if log is not None and pipeline is self._active and (updates is None or not log.append(updates)):
            log.renew(pipeline.config, forwarding_state(pipeline, arrays=False))

    def _reconciled(self, old: ForwardingPipeline, new: ForwardingPipeline) -> ForwardingPipeline:
        """Copy the contents of the old pipeline into the new one."""
        if new.same_program(old):
            # Nothing is lost if nothing is replaced, registers included.
            old.config = new.config
            return old
        with self._chassis.turn:
            updates = forwarding_state(old)
        for update in updates:
            error = _attempt(new, update)
            if error is not None:
                raise invalid(f"the forwarding state does not fit the new program: {error.message}")
        return new

    def _current(self) -> ForwardingPipeline:
        current = self._saved or self._active
        if current is None:
            raise failed_precondition(
                "No forwarding pipeline config set for this device; use SetForwardingPipelineConfig first"
            )
        return current

    # -- entities

    def write(
        self, updates: Iterable[Any], atomicity: int, permit: Callable[[], None] = lambda: None
    ) -> None:
        """Carry out a batch of updates.

        `permit`: raises P4RuntimeError when the rest of the batch must not be carried out any more. Called with the switch's
        turn taken, so that no read of another controller comes between it and the updates. Raises P4RuntimeError: there is
        no program, or the atomicity is unknown; or what `permit` raised. Raises BatchError if some update failed. The others
        were carried out, unless the batch was to be atomic.
        """
        with self._control:
            pipeline = self._current()
            if atomicity == _WriteRequest.CONTINUE_ON_ERROR:
                outcomes: list[P4RuntimeError | None] = []
                remaining = iter(updates)
                while chunk := list(islice(remaining, UPDATES_PER_TURN)):
                    with self._chassis.turn:
                        permit()
                        tried = [_attempt(pipeline, update) for update in chunk]
                        self._log(pipeline, [u for u, o in zip(chunk, tried, strict=True) if o is None])
                        outcomes += tried
            elif atomicity in (_WriteRequest.ROLLBACK_ON_ERROR, _WriteRequest.DATAPLANE_ATOMIC):
                with self._chassis.turn:
                    permit()
                    batch = list(updates)
                    outcomes = _all_or_none(pipeline, batch)
                    self._log(pipeline, [] if any(outcomes) else batch)
            else:
                raise invalid(f"{atomicity} is no atomicity of a batch")
        if any(outcome is not None for outcome in outcomes):
            raise BatchError(outcomes)

    def read(self, entities: Iterable[Any]) -> Iterator[Any]:
        """Yield the entities that each of the given ones selects, all as they are now."""
        pipeline = self._current()
        with self._chassis.turn:
            found = [pipeline.read(entity) for entity in entities]
        return chain.from_iterable(found)

    # -- stream

    def packet_out(self, packet: Any) -> None:
        """Run a controller's packet through the switch."""
        if self._active is None:
            raise failed_precondition("there is no program to run the packet through")
        self._chassis.packet_out(packet_out(packet, self._active.catalog.packet_out))

    def acknowledge(self, ack: Any) -> None:
        """Take a controller's word that it has a digest list."""
        with self._chassis.turn:
            if self._active is None:
                raise failed_precondition("there is no program that could have sent a digest")
            self._active.digests.acknowledge(ack)

    def _run_notices(self) -> None:
        tick_ns = int(TICK_S * 1e9)
        next_tick_ns = self._chassis.now_ns() + tick_ns
        while not self._stopping.is_set():
            try:
                with suppress(queue.Empty):
                    self._notify(*self._events.get(timeout=TICK_S))
                if (now_ns := self._chassis.now_ns()) >= next_tick_ns:
                    next_tick_ns = now_ns + tick_ns
                    self._tick(now_ns)
            except Exception:
                # A notification that fails must not suppress those that follow.
                _LOG.exception("a notice for the controllers is lost")

    def _notify(self, pipeline: ForwardingPipeline, frames: list[bytes], samples: list[Digest]) -> None:
        for frame in frames:
            packet = packet_in(frame, pipeline.catalog.packet_in)
            if packet is not None:
                self.notify(p4runtime_pb2.StreamMessageResponse(packet=packet))
        if samples:
            with self._chassis.turn:
                lists = pipeline.digests.add(samples, self._chassis.now_ns())
            self._send_digests(lists)

    def _tick(self, now_ns: int) -> None:
        with self._chassis.turn:
            active = self._active
            if active is None:
                return
            lists = active.digests.due(now_ns)
            idle = active.tables.idle(now_ns)
        self._send_digests(lists)
        if idle:
            notice = p4runtime_pb2.IdleTimeoutNotification(table_entry=idle, timestamp=time.time_ns())
            self.notify(p4runtime_pb2.StreamMessageResponse(idle_timeout_notification=notice))

    def _send_digests(self, lists: Iterable[Any]) -> None:
        for each in lists:
            each.timestamp = time.time_ns()
            self.notify(p4runtime_pb2.StreamMessageResponse(digest=each))


def _attempt(pipeline: ForwardingPipeline, update: Any) -> P4RuntimeError | None:
    try:
        pipeline.write(update)
    except P4RuntimeError as error:
        return error
    return None


def _all_or_none(pipeline: ForwardingPipeline, updates: list[Any]) -> list[P4RuntimeError | None]:
    """Carry out all updates, or, if one fails, none."""
    before = pipeline.save()
    for index, update in enumerate(updates):
        error = _attempt(pipeline, update)
        if error is not None:
            pipeline.restore(before)
            undone: list[P4RuntimeError | None] = [
                P4RuntimeError(Code.ABORTED, f"not carried out, as update {index} of the batch failed")
            ] * len(updates)
            undone[index] = error
            return undone
    return [None] * len(updates)
