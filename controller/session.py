"""One P4Runtime session with one switch: every wait has a deadline, every failure is an error of one sentence.

The errors of a batch of updates are decoded as in P4Runtime 1.3, section 12.3.

Failures raise `ControllerError` with the reason.
"""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from controller.errors import ControllerError, NotPrimaryError, SwitchRefusedError, SwitchUnreachableError
from netsum_common.channel import PLAINTEXT, TlsFiles, advice_on_silence, open_channel
from netsum_common.p4rt import code_pb2, p4info_pb2, p4runtime_pb2, p4runtime_pb2_grpc, status_pb2

CHANNEL_OPTIONS = (("grpc.max_receive_message_length", 64 << 20),)

Update = p4runtime_pb2.Update
PROGRAM_TIMEOUT_S = 600.0  # A switch may have to compile the program first.
GRACE_S = 1.0  # Time for the switch to end a stream that the controller has ended.

OPENING = "opening the session"


class P4RuntimeSession:
    """The primary controller's session with one switch.

    `address`: gRPC address of its P4Runtime server, such as ``127.0.0.1:9559`` or ``unix:/run/switch.sock``. `device_id`:
    the switch's P4Runtime device id. `timeout_s`: deadline of connecting and of every request, in seconds. `tls`:
    certificates for the connection; without any it is in clear. `on_change`: called, in a thread of the session, when `lost`
    or `primary` may have changed. Raises SwitchUnreachableError if nothing answers within the deadline. Raises
    NotPrimaryError if another controller is primary.
    """

    def __init__(
        self,
        address: str,
        device_id: int,
        election_id: int,
        timeout_s: float,
        tls: TlsFiles = PLAINTEXT,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_change = on_change
        self.address = address
        self.device_id = device_id
        self.election_id = election_id
        self.timeout_s = timeout_s
        self.tls = tls
        self.channel: Any = open_channel(address, tls, CHANNEL_OPTIONS)
        self.stub: Any = p4runtime_pb2_grpc.P4RuntimeStub(self.channel)
        self._requests: queue.Queue[Any] = queue.Queue()
        self._arbitrations: queue.Queue[Any] = queue.Queue()
        self._stream: Any = None
        self._receiver: threading.Thread | None = None
        self._stream_end: grpc.RpcError | None = None
        self._lost = False
        self._primary = True  # Until the switch says otherwise, for the first time.
        try:
            self._open_stream()
        except BaseException:
            self.tear_down()
            raise

    def _open_stream(self) -> None:
        """Open the stream and become primary."""
        try:
            grpc.channel_ready_future(self.channel).result(timeout=self.timeout_s)
        except grpc.FutureTimeoutError:
            raise SwitchUnreachableError(
                f"no P4Runtime server answers at {self.address} within {self.timeout_s:g} s: "
                + advice_on_silence(self.address, self.tls)
            ) from None
        self._stream = self.stub.StreamChannel(iter(self._requests.get, None))
        self._receiver = threading.Thread(target=self._receive, name=f"p4runtime {self.address}", daemon=True)
        self._receiver.start()
        request = p4runtime_pb2.StreamMessageRequest()
        request.arbitration.device_id = self.device_id
        self._set_election_id(request.arbitration.election_id)
        self._requests.put(request)
        try:
            answer = self._arbitrations.get(timeout=self.timeout_s)
        except queue.Empty:
            raise SwitchUnreachableError(
                f"the P4Runtime server at {self.address} did not open a session within {self.timeout_s:g} s"
            ) from None
        if answer is None:
            raise self._translated(self._stream_end, OPENING)
        if answer.arbitration.status.code != code_pb2.OK:
            raise NotPrimaryError(
                f"another controller is primary at {self.address} (device {self.device_id}): "
                "stop it, or use a higher election id"
            )

    def tear_down(self) -> None:
        """End the session; may be called twice."""
        self._requests.put(None)
        if self._receiver is not None:
            # A switch that ends the stream has dropped the controller; it may notice a cancelled stream only after the next
            # stream has begun.
            self._receiver.join(min(GRACE_S, self.timeout_s))
        if self._stream is not None:
            self._stream.cancel()
        if self._receiver is not None:
            self._receiver.join(self.timeout_s)
        self.channel.close()

    @property
    def lost(self) -> bool:
        """Whether the switch ended the session or stopped answering; a lost session is not used again."""
        return self._lost

    @property
    def primary(self) -> bool:
        """Whether this controller has been primary since the session began.

        Another primary controller may have changed everything, so only a new session, which reconciles the switch, goes on.
        """
        return self._primary

    def pipeline_cookie(self) -> int:
        """Return the cookie of the switch's program; 0 if there is no program or no cookie."""
        request = p4runtime_pb2.GetForwardingPipelineConfigRequest(
            device_id=self.device_id,
            response_type=p4runtime_pb2.GetForwardingPipelineConfigRequest.COOKIE_ONLY,
        )
        with self._translating("reading which program it runs"):
            try:
                answer = self.stub.GetForwardingPipelineConfig(request, timeout=self.timeout_s)
                return int(answer.config.cookie.cookie)
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.FAILED_PRECONDITION:  # No program.
                    return 0
                raise

    def configure(self, p4info: p4info_pb2.P4Info, device_config: bytes, cookie: int = 0) -> None:
        """Give the switch a program; it starts empty."""
        request = p4runtime_pb2.SetForwardingPipelineConfigRequest(device_id=self.device_id)
        self._set_election_id(request.election_id)
        request.action = p4runtime_pb2.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT
        request.config.p4info.CopyFrom(p4info)
        request.config.p4_device_config = device_config
        request.config.cookie.cookie = cookie
        with self._translating("setting the program"):
            self.stub.SetForwardingPipelineConfig(request, timeout=PROGRAM_TIMEOUT_S)

    def apply(self, kind: "Update.Type", entities: Sequence[p4runtime_pb2.Entity], what: str) -> None:
        """Write entities in one request.

        `kind`: `Update.INSERT`, `MODIFY` or `DELETE`. `entities`: if empty, no request is sent. `what`: the purpose for
        the error message, such as "admitting job digits". Raises ControllerError if the switch refused some of them (the others
        may have been written), or does not answer.
        """
        if not entities:
            return
        request = p4runtime_pb2.WriteRequest(
            device_id=self.device_id, updates=[Update(type=kind, entity=entity) for entity in entities]
        )
        self._set_election_id(request.election_id)
        with self._translating(what):
            self.stub.Write(request, timeout=self.timeout_s)

    def fetch(self, asked: Sequence[p4runtime_pb2.Entity], what: str) -> list[p4runtime_pb2.Entity]:
        """Read all entities that `asked` stands for, in one request."""
        request = p4runtime_pb2.ReadRequest(device_id=self.device_id, entities=asked)
        with self._translating(what):
            answers = self.stub.Read(request, timeout=self.timeout_s)
            return [found for answer in answers for found in answer.entities]

    def _set_election_id(self, message: Any) -> None:
        message.high, message.low = divmod(self.election_id, 1 << 64)

    def _receive(self) -> None:
        try:
            for message in self._stream:
                if message.HasField("arbitration"):
                    self._primary &= message.arbitration.status.code == code_pb2.OK
                    self._arbitrations.put(message)
                    self._on_change()
        except grpc.RpcError as error:
            self._stream_end = error
        self._lost = True
        self._arbitrations.put(None)
        self._on_change()

    @contextlib.contextmanager
    def _translating(self, what: str) -> Iterator[None]:
        # The channel reconnects by itself, perhaps to a restarted switch without program and arbitration, so a lost session
        # must not be used again.
        if self._lost:
            raise self._gone(what)
        if not self._primary:
            raise self._superseded(what)
        try:
            yield
        except grpc.RpcError as error:
            raise self._translated(error, what) from None

    def _superseded(self, what: str) -> NotPrimaryError:
        return NotPrimaryError(f"another controller became primary at {self.address} ({what})")

    def _gone(self, what: str) -> SwitchUnreachableError:
        return SwitchUnreachableError(f"the connection to the switch at {self.address} was lost ({what})")

    def _translated(self, error: Any, what: str) -> ControllerError:
        code = error.code() if error is not None else grpc.StatusCode.UNAVAILABLE
        if code is grpc.StatusCode.UNAVAILABLE:
            self._lost = True
            return self._gone(what)
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return SwitchUnreachableError(f"the switch at {self.address} did not answer in time ({what})")
        if code is grpc.StatusCode.PERMISSION_DENIED:
            return self._superseded(what)
        reason = _update_errors(error) or f"{code.name}: {' '.join(str(error.details()).split())}"
        if what == OPENING and "election id" in reason.lower():
            return NotPrimaryError(
                f"another controller has this election id at {self.address}: stop it, or use a higher one"
            )
        return SwitchRefusedError(f"the switch at {self.address} refused {what}: {reason}")


def _update_errors(error: Any) -> str:
    """Describe why updates of a batch were refused (P4Runtime 1.3, section 12.3); empty if the switch gives no details."""
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
