"""A P4Runtime client for tests: sends messages, right or wrong, and keeps a switch's stream."""

import queue
import threading
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import text_format

from netsum_common.p4rt import code_pb2, p4runtime_pb2, p4runtime_pb2_grpc

DEADLINE_S = 400.0


class RawClient:
    """A session with the P4Runtime server at an address; expects to be primary.

    Parameters
    ----------
    device_id
        The switch's.
    address
        As gRPC writes it.
    election_id
        High and low half.
    """

    def __init__(self, device_id: int, address: str, election_id: tuple[int, int]) -> None:
        self.device_id = device_id
        self.election_id = election_id
        self.channel = grpc.insecure_channel(address)
        self.stub = p4runtime_pb2_grpc.P4RuntimeStub(self.channel)
        self.stream_out_q: queue.Queue[Any] = queue.Queue()
        kinds = p4runtime_pb2.StreamMessageResponse.DESCRIPTOR.oneofs_by_name["update"].fields
        self.stream_in_q: dict[str, queue.Queue[Any]] = {field.name: queue.Queue() for field in kinds}
        self._stream = self.stub.StreamChannel(iter(self.stream_out_q.get, None))
        self._receiver = threading.Thread(target=self._receive, daemon=True)
        self._receiver.start()
        request = p4runtime_pb2.StreamMessageRequest()
        request.arbitration.device_id = device_id
        self._elect(request.arbitration)
        self.stream_out_q.put(request)
        answer = self.get_stream_packet("arbitration", DEADLINE_S)
        assert answer is not None
        assert answer.arbitration.status.code == code_pb2.OK

    def tear_down(self) -> None:
        self.stream_out_q.put(None)
        self._receiver.join(DEADLINE_S)
        self.channel.close()

    def get_stream_packet(self, kind: str, timeout: float = 1.0) -> Any:
        """The next message of a kind; None if none comes in time, or the stream has ended."""
        try:
            return self.stream_in_q[kind].get(timeout=timeout)
        except queue.Empty:
            return None

    def set_fwd_pipe_config(self, p4info: str, program: str) -> None:
        request = p4runtime_pb2.SetForwardingPipelineConfigRequest(device_id=self.device_id)
        self._elect(request)
        request.action = p4runtime_pb2.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT
        text_format.Parse(Path(p4info).read_text(), request.config.p4info)
        request.config.p4_device_config = Path(program).read_bytes()
        self.stub.SetForwardingPipelineConfig(request, timeout=DEADLINE_S)

    def write(self, request: Any) -> None:
        request.device_id = self.device_id
        self._elect(request)
        self.stub.Write(request, timeout=DEADLINE_S)

    def read_one(self, entity: Any) -> Any:
        request = p4runtime_pb2.ReadRequest(device_id=self.device_id, entities=[entity])
        return self.stub.Read(request, timeout=DEADLINE_S)

    def _elect(self, message: Any) -> None:
        message.election_id.high, message.election_id.low = self.election_id

    def _receive(self) -> None:
        try:
            for message in self._stream:
                self.stream_in_q[message.WhichOneof("update")].put(message)
        except grpc.RpcError:
            for each in self.stream_in_q.values():
                each.put(None)
