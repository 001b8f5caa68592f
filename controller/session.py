"""One P4Runtime session with one switch: every wait has a deadline, every failure is one sentence.

Built on p4runtime-shell's `P4RuntimeClient`, which carries the stubs and speaks the protocol of a session.
What it does not do is replaced here: it exits the process when a switch does not answer, prints when
another controller is primary, waits for ever for answers, its receiving thread keeps the process alive, and
version 0.0.6 never ends unpacking the errors of a batch of which a part succeeded.
"""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import grpc
from google.protobuf.message import DecodeError
from google.rpc import code_pb2, status_pb2
from p4.config.v1 import p4info_pb2
from p4.v1 import p4runtime_pb2, p4runtime_pb2_grpc
from p4runtime_sh.p4runtime import P4RuntimeClient

from controller.errors import ControllerError, NotPrimaryError, SwitchRefusedError, SwitchUnreachableError
from host_agent.wire.channel import PLAINTEXT, TlsFiles, advice_on_silence, open_channel

CHANNEL_OPTIONS = (("grpc.max_receive_message_length", 64 << 20),)

Update = p4runtime_pb2.Update
PROGRAM_TIMEOUT_S = 120.0
"""A switch may have to compile the program first."""

OPENING = "opening the session"


class _CallDetails(NamedTuple):
    """What `grpc.ClientCallDetails` describes: a call, here with a deadline."""

    method: str
    timeout: float
    metadata: Any
    credentials: Any
    wait_for_ready: Any
    compression: Any


class _CallDeadline(
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[misc]  # gRPC ships no types
    grpc.UnaryStreamClientInterceptor,  # type: ignore[misc]
):
    """Gives every request without a deadline one; `P4RuntimeClient` sets none."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s

    def _with_deadline(self, proceed: Callable[..., Any], details: Any, request: Any) -> Any:
        dated = _CallDetails(
            details.method,
            self._timeout_s if details.timeout is None else details.timeout,
            details.metadata,
            details.credentials,
            details.wait_for_ready,
            details.compression,
        )
        return proceed(dated, request)

    intercept_unary_unary = _with_deadline
    intercept_unary_stream = _with_deadline


class P4RuntimeSession(P4RuntimeClient):  # type: ignore[misc]  # p4runtime-shell ships no types
    """The primary controller's session with one switch.

    Parameters
    ----------
    address
        gRPC address of its P4Runtime server, such as ``127.0.0.1:9559`` or ``unix:/run/switch.sock``.
    device_id
        The switch's P4Runtime device id.
    election_id
        The controller with the highest is primary.
    timeout_s
        Deadline of connecting and of every request, in seconds.
    tls
        Certificates for the connection; without any it is in clear.

    Raises
    ------
    SwitchUnreachableError
        Nothing answers within the deadline.
    NotPrimaryError
        Another controller is primary.
    """

    def __init__(
        self,
        address: str,
        device_id: int,
        election_id: int,
        timeout_s: float,
        tls: TlsFiles = PLAINTEXT,
    ) -> None:
        self.address = address
        self.timeout_s = timeout_s
        self.tls = tls
        super().__init__(device_id, address, (election_id >> 64, election_id & 0xFFFF_FFFF_FFFF_FFFF))

    def set_up_stream(self) -> None:
        """Open the channel and the stream, and become primary."""
        self.channel.close()
        self.channel: Any = open_channel(self.address, self.tls, CHANNEL_OPTIONS)
        dated = grpc.intercept_channel(self.channel, _CallDeadline(self.timeout_s))
        self.stub = p4runtime_pb2_grpc.P4RuntimeStub(dated)
        # Of what a switch streams the controller uses nothing else: packets and digests are not kept.
        self.stream_in_q: dict[str, queue.Queue[Any]] = {"arbitration": queue.Queue()}
        self.stream_out_q: queue.Queue[Any] = queue.Queue()
        self._stream_end: grpc.RpcError | None = None
        self._lost = False
        self._primary = False
        try:
            grpc.channel_ready_future(self.channel).result(timeout=self.timeout_s)
            self.stream = self.stub.StreamChannel(iter(self.stream_out_q.get, None))
            self.stream_recv_thread = threading.Thread(
                target=self._receive, name=f"p4runtime {self.address}", daemon=True
            )
            self.stream_recv_thread.start()
            self.handshake()
        except grpc.FutureTimeoutError:
            self.tear_down()
            raise SwitchUnreachableError(
                f"no P4Runtime server answers at {self.address} within {self.timeout_s:g} s: "
                + advice_on_silence(self.address, self.tls)
            ) from None
        except BaseException:
            self.tear_down()
            raise

    def handshake(self) -> None:
        """Ask to be primary and wait for the answer."""
        request = p4runtime_pb2.StreamMessageRequest()
        request.arbitration.device_id = self.device_id
        request.arbitration.election_id.high, request.arbitration.election_id.low = self.election_id
        self.stream_out_q.put(request)
        try:
            answer = self.stream_in_q["arbitration"].get(timeout=self.timeout_s)
        except queue.Empty:
            raise SwitchUnreachableError(
                f"the P4Runtime server at {self.address} did not open a session within {self.timeout_s:g} s"
            ) from None
        if answer is None:
            raise self._translated(self._stream_end, OPENING)
        status = answer.arbitration.status
        if status.code != code_pb2.OK:
            raise NotPrimaryError(
                f"another controller is primary at {self.address} (device {self.device_id}): "
                "stop it, or take a higher election id"
            )

    def tear_down(self) -> None:
        """End the session; may be called twice."""
        self.stream_out_q.put(None)
        stream = getattr(self, "stream", None)
        if stream is not None:
            stream.cancel()
            self.stream_recv_thread.join(self.timeout_s)
        self.channel.close()

    @property
    def lost(self) -> bool:
        """Whether the switch ended the session, or stopped answering: it stays lost until it is set up anew."""
        return self._lost

    @property
    def primary(self) -> bool:
        """Whether the switch has said last that this is the primary controller."""
        return self._primary

    def pipeline_cookie(self) -> int:
        """Return the cookie of the program the switch runs; 0 if it runs none, or one without.

        Raises
        ------
        ControllerError
            The switch does not answer.
        """
        request = p4runtime_pb2.GetForwardingPipelineConfigRequest(
            device_id=self.device_id,
            response_type=p4runtime_pb2.GetForwardingPipelineConfigRequest.COOKIE_ONLY,
        )
        with self._translating("reading which program it runs"):
            try:
                return int(self.stub.GetForwardingPipelineConfig(request).config.cookie.cookie)
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.FAILED_PRECONDITION:  # It has none.
                    return 0
                raise

    def configure(self, p4info: p4info_pb2.P4Info, device_config: bytes, cookie: int = 0) -> None:
        """Give the switch a program; it starts empty.

        Raises
        ------
        ControllerError
            The switch refused it, or does not answer.
        """
        request = p4runtime_pb2.SetForwardingPipelineConfigRequest(device_id=self.device_id)
        request.election_id.high, request.election_id.low = self.election_id
        request.action = p4runtime_pb2.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT
        request.config.p4info.CopyFrom(p4info)
        request.config.p4_device_config = device_config
        request.config.cookie.cookie = cookie
        with self._translating("setting the program"):
            self.stub.SetForwardingPipelineConfig(request, timeout=PROGRAM_TIMEOUT_S)

    def apply(self, kind: int, entities: Sequence[p4runtime_pb2.Entity], what: str) -> None:
        """Write entities in one request.

        Parameters
        ----------
        kind
            `Update.INSERT`, `MODIFY` or `DELETE`.
        entities
            What to write; none is nothing to do.
        what
            For the error message, such as "admitting job digits".

        Raises
        ------
        ControllerError
            The switch refused some of them (the others may have been written), or does not answer.
        """
        if not entities:
            return
        high, low = self.election_id
        request = p4runtime_pb2.WriteRequest(
            device_id=self.device_id,
            election_id=p4runtime_pb2.Uint128(high=high, low=low),
            updates=[Update(type=kind, entity=entity) for entity in entities],
        )
        with self._translating(what):
            self.stub.Write(request)

    def fetch(self, asked: Sequence[p4runtime_pb2.Entity], what: str) -> list[p4runtime_pb2.Entity]:
        """Read every entity that some requests stand for, in one request.

        Raises
        ------
        ControllerError
            The switch refused, or does not answer.
        """
        request = p4runtime_pb2.ReadRequest(device_id=self.device_id, entities=asked)
        with self._translating(what):
            return [found for answer in self.stub.Read(request) for found in answer.entities]

    def _receive(self) -> None:
        try:
            for message in self.stream:
                if message.HasField("arbitration"):
                    self._primary = message.arbitration.status.code == code_pb2.OK
                    self.stream_in_q["arbitration"].put(message)
        except grpc.RpcError as error:
            self._stream_end = error
        self._lost = True
        self.stream_in_q["arbitration"].put(None)

    @contextlib.contextmanager
    def _translating(self, what: str) -> Iterator[None]:
        # The channel connects again by itself, to a switch that restarted without program and arbitration:
        # a session that was lost once stays lost until it is set up anew.
        if self._lost:
            raise self._gone(what)
        try:
            yield
        except grpc.RpcError as error:
            raise self._translated(error, what) from None

    def _gone(self, what: str) -> SwitchUnreachableError:
        return SwitchUnreachableError(f"the switch at {self.address} is gone ({what})")

    def _translated(self, error: Any, what: str) -> ControllerError:
        code = error.code() if error is not None else grpc.StatusCode.UNAVAILABLE
        if code is grpc.StatusCode.UNAVAILABLE:
            self._lost = True
            return self._gone(what)
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return SwitchUnreachableError(f"the switch at {self.address} did not answer in time ({what})")
        if code is grpc.StatusCode.PERMISSION_DENIED:
            return NotPrimaryError(f"another controller became primary at {self.address} ({what})")
        reason = _update_errors(error) or f"{code.name}: {' '.join(str(error.details()).split())}"
        if what == OPENING and "election id" in reason.lower():
            return NotPrimaryError(
                f"another controller has this election id at {self.address}: stop it, or take a higher one"
            )
        return SwitchRefusedError(f"the switch at {self.address} refused {what}: {reason}")


def _update_errors(error: Any) -> str:
    """Say why updates of a batch were refused (P4Runtime 1.3, section 12.3); nothing if the switch does not say."""
    metadata = dict(error.trailing_metadata() or ()) if error is not None else {}
    status = status_pb2.Status()
    try:
        status.ParseFromString(metadata.get("grpc-status-details-bin", b""))
    except DecodeError:
        return ""
    reasons = []
    for detail in status.details:
        one = p4runtime_pb2.Error()
        if detail.Unpack(one) and one.canonical_code != code_pb2.OK:
            message = f": {one.message}" if one.message else ""
            reasons.append(f"{code_pb2.Code.Name(one.canonical_code)}{message}")
    return "; ".join(dict.fromkeys(reasons))
