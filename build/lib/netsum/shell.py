"""p4runtime-shell on a running switch, without taking the switch from the controller that has it."""

import queue
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import grpc

from controller.errors import ControllerError, SwitchUnreachableError
from controller.session import CHANNEL_OPTIONS
from host_agent.p4rt import code_pb2, p4runtime_pb2, p4runtime_pb2_grpc
from host_agent.wire.channel import PLAINTEXT, TlsFiles, advice_on_silence, open_channel
from netsum.cli.errors import CommandError

TIMEOUT_S = 10.0
SCRIPT = "standard input"


@dataclass(frozen=True)
class Standing:
    """What a newcomer finds at a switch.

    Attributes
    ----------
    primary
        Election id of the controller that may write; None: there is none.
    has_program
        Whether the switch has a program.
    """

    primary: int | None
    has_program: bool


@dataclass(frozen=True)
class Target:
    """A switch.

    Attributes
    ----------
    address
        gRPC address of its P4Runtime server, HOST:PORT or unix:PATH.
    device_id
        What it is known by there.
    tls
        Certificates for it; a unix socket is spoken to in clear.
    """

    address: str
    device_id: int
    tls: TlsFiles = PLAINTEXT


def find_out(target: Target, timeout_s: float = TIMEOUT_S) -> Standing:
    """Ask a switch who its primary is, without wanting to be it.

    Raises
    ------
    ControllerError
        It does not answer, or is another device.
    """
    with open_channel(target.address, target.tls, CHANNEL_OPTIONS) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=timeout_s)
        except grpc.FutureTimeoutError:
            raise SwitchUnreachableError(
                f"no P4Runtime server answers at {target.address} within {timeout_s:g} s: "
                + advice_on_silence(target.address, target.tls)
            ) from None
        stub = p4runtime_pb2_grpc.P4RuntimeStub(channel)
        asked: queue.Queue[Any] = queue.Queue()
        asked.put(_arbitration(p4runtime_pb2, target.device_id))
        stream = stub.StreamChannel(iter(asked.get, None), timeout=timeout_s)
        try:
            told = next(stream).arbitration
            # P4Runtime 1.3, section 5.2: OK is us, ALREADY_EXISTS another one, NOT_FOUND nobody.
            taken = told.status.code == code_pb2.ALREADY_EXISTS
            request = p4runtime_pb2.GetForwardingPipelineConfigRequest(
                device_id=target.device_id,
                response_type=p4runtime_pb2.GetForwardingPipelineConfigRequest.COOKIE_ONLY,
            )
            has_program = _succeeds(lambda: stub.GetForwardingPipelineConfig(request, timeout=timeout_s))
        except grpc.RpcError as error:
            said = " ".join(str(error.details()).split())
            raise ControllerError(f"the switch at {target.address} opened no session: {said}") from None
        finally:
            asked.put(None)
            stream.cancel()
        primary = (told.election_id.high << 64 | told.election_id.low) if taken else None
        return Standing(primary, has_program)


def _succeeds(call: Any) -> bool:
    try:
        call()
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
            return False
        raise
    return True


def _arbitration(stubs: Any, device_id: int) -> Any:
    """Return a request for a session that never becomes primary: without an election id; in the message types of some stubs."""
    request = stubs.StreamMessageRequest()
    request.arbitration.device_id = device_id
    return request


def run_shell(
    target: Target, election_id: int | None, program: tuple[Path, Path] | None, banner: str
) -> None:
    """Run p4runtime-shell until its end: a prompt on a terminal, else the script on standard input.

    Parameters
    ----------
    target
        The switch.
    election_id
        None reads only.
    program
        P4Info (text) and BMv2 JSON to give the switch first.
    banner
        What to say at the start of a prompt.

    Raises
    ------
    CommandError
        The script failed; the message says in which line.
    """
    from p4runtime_sh import shell

    fault: list[CommandError] = []
    start_ipython = shell.start_ipython

    def start(user_ns: dict[str, Any], config: Any, argv: list[str]) -> None:
        if sys.stdin.isatty():
            config.TerminalInteractiveShell.banner1 = banner + "\n"
            start_ipython(user_ns=user_ns, config=config, argv=argv)
            return
        try:
            _run_script(user_ns)
        except CommandError as error:  # to be raised when the session has ended
            fault.append(error)

    high, low = divmod(election_id or 0, 1 << 64)
    arguments = ["netsum shell", "--grpc-addr", target.address, "--device-id", str(target.device_id)]
    arguments += ["--election-id", f"{high},{low}"]
    if program is not None:
        arguments += ["--config", ",".join(map(str, program))]
    if target.tls and not target.address.startswith("unix:"):
        files = (("--cacert", target.tls.ca), ("--cert", target.tls.cert), ("--private-key", target.tls.key))
        arguments += ["--ssl", *(word for name, file in files if file for word in (name, str(file)))]
    # p4runtime-shell is a program, not a library: the names it offers are put together in its `main`.
    with mock.patch.object(shell, "start_ipython", start), mock.patch.object(sys, "argv", arguments):
        client = _read_only(shell.P4RuntimeClient) if election_id is None else shell.P4RuntimeClient
        with mock.patch.object(shell, "P4RuntimeClient", client):
            shell.main()
    if fault:
        raise fault[0]


def _read_only(client: Any) -> Any:
    """Make of p4runtime-shell's client one that is never primary and says so when it is to write."""
    from p4.v1 import p4runtime_pb2 as stubs_of_the_shell

    class ReadOnlyClient(client):  # type: ignore[misc]  # p4runtime-shell ships no types
        def handshake(self) -> None:
            self.stream_out_q.put(_arbitration(stubs_of_the_shell, self.device_id))
            if self.get_stream_packet("arbitration", timeout=TIMEOUT_S) is None:
                self.tear_down()
                raise SwitchUnreachableError("the switch opened no session")

        def write(self, *_: object) -> None:
            raise CommandError("this session only reads; --election-id lets it write")

        write_update = set_fwd_pipe_config = write

    return ReadOnlyClient


def _run_script(names: dict[str, Any]) -> None:
    """Run what is on standard input as Python, with the names that the prompt has too."""
    try:
        exec(compile(sys.stdin.read(), SCRIPT, "exec"), names)
    except Exception as fault:
        lines = [
            frame.lineno for frame in traceback.extract_tb(fault.__traceback__) if frame.filename == SCRIPT
        ]
        line = (
            getattr(fault, "lineno", None) if isinstance(fault, SyntaxError) else lines[-1] if lines else None
        )
        said = str(fault).strip() or type(fault).__name__
        raise CommandError(f"line {line} of the script: {said}") from None
