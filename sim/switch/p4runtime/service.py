"""The gRPC face of a switch: P4Runtime's calls and the controllers' streams."""

import functools
import itertools
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

import grpc

from netsum_common.p4rt import p4runtime_pb2, p4runtime_pb2_grpc
from sim.switch.p4runtime.arbitration import Arbiter, Controller, role_name
from sim.switch.p4runtime.device import Device
from sim.switch.p4runtime.status_errors import (
    SPACE,
    BatchError,
    P4RuntimeError,
    aborted,
    invalid,
    not_found,
    permission_denied,
)

API_VERSION = "1.4.1"  # The P4Runtime version of the stubs in use.

ENTITIES_PER_RESPONSE = 1000
QUEUED_MESSAGES = 4096
"""Messages that may wait for a slow controller; further packets, digests and notices to it are dropped."""

_STATUS = {code.value[0]: code for code in grpc.StatusCode}

Answer = TypeVar("Answer")


class _Stream:
    """The sending side of a controller's stream."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def send(self, message: Any) -> None:
        """Queue a message; never blocks."""
        if self._queue.qsize() < QUEUED_MESSAGES or message.HasField("arbitration"):
            self._queue.put(message)

    def end(self, error: P4RuntimeError | None = None) -> None:
        """End the stream after the queued messages, with an error or without."""
        self._queue.put(error)

    def messages(self) -> Iterator[Any]:
        """Yield messages until the end, and raise the error it was ended with."""
        while (message := self._queue.get()) is not None:
            if isinstance(message, P4RuntimeError):
                raise message
            yield message


def _answering(call: Callable[[Any, Any, Any], Answer]) -> Callable[[Any, Any, Any], Answer]:
    """Make a method that answers a call report its errors as gRPC's."""

    @functools.wraps(call)
    def answer(self: Any, request: Any, context: Any) -> Answer:
        try:
            return call(self, request, context)
        except P4RuntimeError as error:
            _abort(context, error)
        except BatchError as error:
            status = error.status()
            context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
            context.abort(grpc.StatusCode.UNKNOWN, status.message)
            raise

    return answer


class P4RuntimeService(p4runtime_pb2_grpc.P4RuntimeServicer):
    """P4Runtime's calls on one device. `device`: the device, whose `notify` this sets to send to the primary controllers."""

    def __init__(self, device: Device, device_id: int) -> None:
        self._device = device
        self._device_id = device_id
        self._arbiter = Arbiter(device_id)
        self._arbitration = threading.Lock()
        device.notify = self._notify

    # The methods below have the names gRPC calls them by.

    @_answering
    def Write(self, request: Any, context: Any) -> Any:
        """Carry out a batch of updates."""

        def permit() -> None:
            # The call was given up, or its sender lost its rank, while it waited: the controller that has
            # reconciled the switch since would not learn of its writes.
            if not context.is_active():
                raise aborted("the call ended before its updates were carried out")
            self._check_writer(request)

        self._check_device(request.device_id)
        self._check_writer(request)
        self._device.write(request.updates, request.atomicity, permit)
        return p4runtime_pb2.WriteResponse()

    def Read(self, request: Any, context: Any) -> Iterator[Any]:
        """Yield the entities that a request asks for."""
        entities = self._read(request, context)
        try:
            while chunk := list(itertools.islice(entities, ENTITIES_PER_RESPONSE)):
                yield p4runtime_pb2.ReadResponse(entities=chunk)
        except P4RuntimeError as error:
            _abort(context, error)

    @_answering
    def SetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:
        """Check, keep or install a program."""
        self._check_device(request.device_id)
        self._check_writer(request)
        self._device.set_config(request.action, request.config if request.HasField("config") else None)
        return p4runtime_pb2.SetForwardingPipelineConfigResponse()

    @_answering
    def GetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:
        """Return the program in use."""
        self._check_device(request.device_id)
        config = self._device.get_config(request.response_type)
        return p4runtime_pb2.GetForwardingPipelineConfigResponse(config=config)

    def Capabilities(self, request: Any, context: Any) -> Any:
        """Return the version of P4Runtime."""
        del request, context
        return p4runtime_pb2.CapabilitiesResponse(p4runtime_api_version=API_VERSION)

    def StreamChannel(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        """Talk with one controller until either side ends it."""
        stream = _Stream()
        controller = Controller(stream.send)
        if not context.add_callback(stream.end):
            return
        threading.Thread(
            target=self._listen, args=(requests, stream, controller), name="p4runtime-stream", daemon=True
        ).start()
        try:
            yield from stream.messages()
        except P4RuntimeError as error:
            _abort(context, error)
        finally:
            with self._arbitration:
                self._arbiter.leave(controller)

    @_answering
    def _read(self, request: Any, context: Any) -> Iterator[Any]:
        self._check_device(request.device_id)
        return self._device.read(request.entities)

    def _check_device(self, device_id: int) -> None:
        if device_id != self._device_id:
            raise not_found(f"this switch is device {self._device_id}, not {device_id}")

    def _check_writer(self, request: Any) -> None:
        election_id = None
        if request.HasField("election_id"):
            election_id = (request.election_id.high, request.election_id.low)
        with self._arbitration:
            self._arbiter.check_writer(role_name(request.role, request.role_id), election_id)

    def _listen(self, requests: Iterator[Any], stream: _Stream, controller: Controller) -> None:
        """Handle a controller's messages, until it stops sending."""
        error = None
        # gRPC's iterator raises an exception without a class of its own for a broken stream.
        with suppress(Exception):
            for request in requests:
                try:
                    self._hear(request, stream, controller)
                except P4RuntimeError as refusal:
                    error = refusal
                    break
        stream.end(error)

    def _hear(self, request: Any, stream: _Stream, controller: Controller) -> None:
        kind = request.WhichOneof("update")
        if kind == "arbitration":
            with self._arbitration:
                self._arbiter.update(controller, request.arbitration)
            return
        try:
            with self._arbitration:
                if controller not in self._arbiter.primaries():
                    raise permission_denied("only a primary controller may send packets and acknowledgements")
            if kind == "packet":
                self._device.packet_out(request.packet)
            elif kind == "digest_ack":
                self._device.acknowledge(request.digest_ack)
            else:
                raise invalid("expected an arbitration update, a packet or a digest acknowledgement")
        except P4RuntimeError as error:
            stream.send(_stream_error(error, request, kind))

    def _notify(self, message: Any) -> None:
        with self._arbitration:
            for controller in self._arbiter.primaries():
                controller.send(message)


def _stream_error(error: P4RuntimeError, request: Any, kind: str | None) -> Any:
    message = p4runtime_pb2.StreamMessageResponse()
    message.error.canonical_code = int(error.code)
    message.error.message = error.message
    message.error.space = SPACE
    if kind == "packet":
        message.error.packet_out.packet_out.CopyFrom(request.packet)
    elif kind == "digest_ack":
        message.error.digest_list_ack.digest_list_ack.CopyFrom(request.digest_ack)
    else:
        message.error.other.SetInParent()
    return message


def _abort(context: Any, error: P4RuntimeError) -> NoReturn:
    context.abort(_STATUS[int(error.code)], error.message)
    raise error
