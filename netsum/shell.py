"""p4runtime-shell on a running switch, without taking the switch from the controller that has it."""

import queue
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from controller.errors import ControllerError, SwitchUnreachableError
from controller.session import CHANNEL_OPTIONS
from netsum.command_errors import CommandError
from netsum_common.channel import PLAINTEXT, TlsFiles, advice_on_silence, open_channel
from netsum_common.p4rt import code_pb2, p4runtime_pb2, p4runtime_pb2_grpc

TIMEOUT_S = 10.0
SCRIPT = "standard input"


@dataclass(frozen=True)
class ShellSwitchState:
    """The primary of a switch, and whether it has a program."""

    primary: int | None
    has_program: bool


@dataclass(frozen=True)
class Target:
    """A switch."""

    address: str  # gRPC address of its P4Runtime server, HOST:PORT or unix:PATH.
    device_id: int  # Device id of the switch there.
    tls: TlsFiles = PLAINTEXT  # Certificates for it; a unix socket is spoken to in clear.


def find_out(target: Target, timeout_s: float = TIMEOUT_S) -> ShellSwitchState:
    """Ask a switch who its primary is, without wanting to be it.

    Raises ControllerError if it does not answer, or is another device.
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
            answer = next(stream).arbitration
            # P4Runtime 1.3, section 5.2: OK if this client is primary, ALREADY_EXISTS if another is, NOT_FOUND if none is.
            taken = answer.status.code == code_pb2.ALREADY_EXISTS
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
        primary = (answer.election_id.high << 64 | answer.election_id.low) if taken else None
        return ShellSwitchState(primary, has_program)


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

    `election_id`: none reads only. `program`: P4Info (text) and BMv2 JSON to give the switch first. Raises CommandError if
    the script failed; the message says in which line.
    """
    from p4runtime_sh import p4runtime, shell

    high, low = divmod(election_id or 0, 1 << 64)
    insecure = not target.tls or target.address.startswith("unix:")
    tls = p4runtime.SSLOptions(insecure, *map(_text, (target.tls.ca, target.tls.cert, target.tls.key)))
    client_class = _read_only(shell.P4RuntimeClient) if election_id is None else shell.P4RuntimeClient
    client = client_class(target.device_id, target.address, (high, low), None, tls)
    try:
        if program is not None:
            client.set_fwd_pipe_config(*map(str, program))
        shell.context.set_p4info(client.get_p4info())
        shell.client = client  # The classes below look for the client there.
        names = _names_of_the_prompt(shell)
        if sys.stdin.isatty():
            _prompt(shell, names, banner)
        else:
            _run_script(names)
    except p4runtime.P4RuntimeException as refusal:
        raise CommandError(" ".join(str(refusal).split())) from None
    finally:
        client.tear_down()


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


_CLASSES = (
    *(
        "TableEntry",
        "MatchKey",
        "Action",
        "CounterEntry",
        "DirectCounterEntry",
        "MeterEntry",
        "DirectMeterEntry",
    ),
    *(
        "ActionProfileMember",
        "GroupMember",
        "ActionProfileGroup",
        "OneshotAction",
        "Oneshot",
        "Write",
        "Replica",
    ),
    *("MulticastGroupEntry", "CloneSessionEntry", "DigestEntry", "APIVersion", "global_options"),
)
_BUILDERS = {
    "table_entry": ("table", "TableEntry"),
    "counter_entry": ("counter", "CounterEntry"),
    "direct_counter_entry": ("direct_counter", "DirectCounterEntry"),
    "meter_entry": ("meter", "MeterEntry"),
    "direct_meter_entry": ("direct_meter", "DirectMeterEntry"),
    "action_profile_member": ("action_profile", "ActionProfileMember"),
    "action_profile_group": ("action_profile", "ActionProfileGroup"),
    "digest_entry": ("digest", "DigestEntry"),
}
"""Entity to (kind of object in the P4Info, class), of p4runtime-shell."""


def _names_of_the_prompt(shell: Any) -> dict[str, Any]:
    """Return the names that p4runtime-shell's own prompt offers."""
    names = {name: getattr(shell, name) for name in _CLASSES}
    names |= {kind.p4info_name: shell.P4Objects(kind) for kind in shell.P4Type}
    for entity, (kind, made) in _BUILDERS.items():
        names[entity] = shell.P4RuntimeEntityBuilder(
            shell.P4Type[kind], shell.P4RuntimeEntity[entity], getattr(shell, made)
        )
    return names | {
        "p4info": shell.context.p4info,
        "multicast_group_entry": shell.MulticastGroupEntry,
        "clone_session_entry": shell.CloneSessionEntry,
        "packet_in": shell.PacketIn(),
        "packet_out": shell.PacketOut,
        "idle_timeout_notification": shell.IdleTimeoutNotification(),
        "digest_list": shell.DigestList(),
    }


def _prompt(shell: Any, names: dict[str, Any], banner: str) -> None:
    from IPython import start_ipython
    from traitlets.config.loader import Config

    config = Config()
    config.TerminalInteractiveShell.banner1 = banner + "\n"
    config.TerminalInteractiveShell.prompts_class = shell.MyPrompt
    config.TerminalInteractiveShell.autocall = 2
    config.TerminalInteractiveShell.show_rewritten_input = False
    start_ipython(user_ns=names, config=config, argv=[])


def _read_only(client: Any) -> Any:
    """Return p4runtime-shell's client as a class that never becomes primary and refuses to write."""
    from p4.v1 import p4runtime_pb2 as stubs_of_the_shell

    class ReadOnlyClient(client):  # type: ignore[misc]  # p4runtime-shell ships no types
        def handshake(self) -> None:
            self.stream_out_q.put(_arbitration(stubs_of_the_shell, self.device_id))
            if self.get_stream_packet("arbitration", timeout=TIMEOUT_S) is None:
                self.tear_down()
                raise SwitchUnreachableError("the switch opened no session")

        def write(self, *_: object) -> None:
            raise CommandError("this session is read-only: give --election-id to write")

        write_update = set_fwd_pipe_config = write

    return ReadOnlyClient


def _run_script(names: dict[str, Any]) -> None:
    """Run standard input as Python, with the names of the prompt."""
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
