"""The client with which operators and their programs call a controller service."""

import os
from collections.abc import Iterator
from typing import Any, cast

import grpc
from google.protobuf.message import Message

from controller.errors import ServiceError
from host_agent.job_api import CONTROLLER_VARIABLE, DEFAULT_CONTROLLER, jobs_pb2, jobs_pb2_grpc
from host_agent.job_api.job_request import JobRequest
from host_agent.job_api.jobs_pb2 import EventView, JobView, SwitchView
from netsum_common.channel import KEEPALIVE, TlsFiles, connection_fault, open_channel, what_to_do
from netsum_common.closing import Closing

_AT_CALLER = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.UNKNOWN,  # for a stream that keepalive ended
)
_ADVICE = f"start one with `netsum controller serve`, or name another in {CONTROLLER_VARIABLE}"
_NO_ANSWER = ("connect", "deadline exceeded", "keepalive", "ping timeout", "socket closed")
"""Phrases in gRPC's own messages about unusable connections; a controller that answers sends sentences without them."""


class OperatorClient(Closing):
    """An operator's connection to a controller service; a context manager that closes it.

    Every call raises `ServiceError`, with one sentence, if the service refuses or does not answer.

    Parameters
    ----------
    controller
        "HOST:PORT" or "unix:PATH"; None takes ``NETSUM_CONTROLLER``, or the default address on this machine.
    tls
        Certificates; None takes the ``NETSUM_TLS_*`` variables.
    timeout_s
        Deadline of every call, in seconds.

    Raises
    ------
    host_agent.errors.MisuseError
        The address or a certificate cannot be used.
    """

    def __init__(
        self, controller: str | None = None, *, tls: TlsFiles | None = None, timeout_s: float = 10.0
    ) -> None:
        self.controller = controller or os.environ.get(CONTROLLER_VARIABLE) or DEFAULT_CONTROLLER
        self._timeout_s = timeout_s
        self._tls = TlsFiles.from_environment() if tls is None else tls
        self._channel = open_channel(self.controller, self._tls, KEEPALIVE)
        self._stub: Any = jobs_pb2_grpc.OperatorsStub(self._channel)  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """End the connection."""
        self._channel.close()

    def jobs(self, ended: bool = False) -> list[JobView]:
        """Return all jobs; with `ended`, also those that ended lately."""
        return list(self._call(self._stub.ListJobs, jobs_pb2.ListJobsRequest(ended=ended)).jobs)

    def share(self) -> tuple[str, float]:
        """Return the rule by which jobs share slots (empty: they do not) and Jain's fairness index of their shares."""
        reply = self._call(self._stub.ListJobs, jobs_pb2.ListJobsRequest())
        return reply.share, reply.jain

    def job(self, name: str) -> JobView:
        """Return one job."""
        return cast(JobView, self._call(self._stub.GetJob, jobs_pb2.JobName(name=name)))

    def create_job(self, name: str, world_size: int, **request: Any) -> JobView:
        """Create a job that workers then join by name; `request` has the other fields of `JobRequest`."""
        message = JobRequest(name, world_size, **request).create_message()
        return cast(JobView, self._call(self._stub.CreateJob, message))

    def job_events(self, name: str) -> list[EventView]:
        """Return the transitions of a job, its workers and, while the job lived, switch connections, the oldest first."""
        return list(self._call(self._stub.JobEvents, jobs_pb2.JobName(name=name)).events)

    def restart_job(self, name: str) -> JobView:
        """Give a job a new epoch; ranks that left may join again."""
        return cast(JobView, self._call(self._stub.RestartJob, jobs_pb2.JobName(name=name)))

    def delete_job(self, name: str) -> None:
        """End a job; its slots are free afterwards."""
        self._call(self._stub.DeleteJob, jobs_pb2.JobName(name=name))

    def watch_job(self, name: str, interval_s: float = 1.0) -> Iterator[JobView]:
        """Iterate over views of a job, with rates over the interval; the last view shows the job's end."""
        request = jobs_pb2.WatchJobRequest(name=name, interval_s=interval_s)
        views = self._stub.WatchJob(request)
        try:
            yield from views
        except grpc.RpcError as error:
            raise self._explained(error) from None
        finally:
            views.cancel()

    def switches(self) -> list[SwitchView]:
        """Return all switches."""
        return list(self._call(self._stub.ListSwitches, jobs_pb2.ListSwitchesRequest()).switches)

    def switch(self, name: str = "") -> SwitchView:
        """Return one switch; without a name, the only switch."""
        return cast(SwitchView, self._call(self._stub.GetSwitch, jobs_pb2.SwitchName(name=name)))

    def _call(self, method: Any, request: Any) -> Any:
        try:
            return method(request, timeout=self._timeout_s)
        except grpc.RpcError as error:
            raise self._explained(error) from None

    def _explained(self, error: Any) -> ServiceError:
        details = " ".join(str(error.details()).split())
        unanswered = any(word in details.lower() for word in _NO_ANSWER)
        if (unanswered and error.code() in _AT_CALLER) or not details:
            return ServiceError(
                f"no controller answers at {self.controller} ({connection_fault(details) or error.code().name}): "
                + what_to_do(_ADVICE, details, self._tls)
            )
        return ServiceError(details)


def as_dict(message: Any) -> dict[str, Any]:
    """Return a view as plain values, for JSON: numbers as numbers, states as words, all fields that are not optional."""
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            found[field.name] = dict(sorted(value.items()))
        elif not isinstance(value, (Message, str, int, float)):
            # A repeated field; how descriptors mark such fields differs between versions of protobuf.
            found[field.name] = [_plain(field, each) for each in value]
        elif not field.has_presence or message.HasField(field.name):
            found[field.name] = _plain(field, value)
    return found


def _plain(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return as_dict(value)
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name.lower().replace("_", " ")
    return value
