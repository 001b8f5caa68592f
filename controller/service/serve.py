"""A running controller service: store, registry, job API and HTTP, started together and stopped in order."""

import asyncio
import contextlib
import logging
import os
import signal
import stat
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.message import DecodeError

from controller.errors import ConfigError
from controller.p4runtime_writer import P4RuntimeWriter
from controller.program import CompiledFiles
from controller.service.link import opened
from controller.service.network import ControlledNetwork
from controller.service.recovery import restore_jobs
from controller.service.registry import JobRegistry, RegistryOptions
from controller.service.rpc import AggregatorsService, OperatorsService, WorkersService
from controller.service.scheduler import Scheduler
from controller.service.sessions import Sessions
from controller.service.states import LinkState
from controller.service.store import JobStore
from controller.service.workers import JobMembers
from host_agent.job_api import DEFAULT_CONTROLLER, jobs_pb2_grpc
from netsum_common.channel import PLAINTEXT, TlsFiles, check_target
from netsum_common.loopback import is_loopback
from netsum_common.names import check_name

if TYPE_CHECKING:
    from controller.service.web import HttpServer

log = logging.getLogger(__name__)

STOP_GRACE_S = 0.5

_SERVER_OPTIONS = (
    # Otherwise a second server on the same port would receive every other call.
    ("grpc.so_reuseport", 0),
    # The keepalive options together bound how long a worker's machine can be cut off unnoticed.
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
)


@dataclass(frozen=True)
class ServiceOptions:
    """The configuration of a controller service."""

    network: ControlledNetwork  # The controller's switches and hosts.
    # program, p4info: the compiled program for the switches, and the program's P4Info.
    program: Path
    p4info: Path
    state: Path | str = ":memory:"  # The state file; ":memory:" for none.
    open_state: Callable[[Path | str], JobStore] = JobStore  # Opens the state file.
    open_writer: Callable[..., P4RuntimeWriter] = opened  # Opens a session with a switch.
    # Addresses of the job API: "HOST:PORT" (port 0: any) or "unix:PATH".
    listen: tuple[str, ...] = (DEFAULT_CONTROLLER,)
    # Certificates of the job API; with `ca`, workers and operators need certificates too.
    tls: TlsFiles = PLAINTEXT
    allow_remote: bool = False  # Whether addresses that other machines reach may be served without TLS.
    # Address of the window and of the metrics for Prometheus; None: neither is served. On loopback, it is plain HTTP.
    http: tuple[str, int] | None = None
    http_token: str = ""  # The token that a browser and Prometheus must send; empty: none.
    registry: RegistryOptions = field(default_factory=RegistryOptions)  # Sizes and times.
    election_id: int = 1  # The controller's election id at all switches.


@dataclass
class RunningService:
    """A running service."""

    # registry, scheduler, workers: the jobs, the scheduler of their steps, and the members of jobs.
    registry: JobRegistry
    scheduler: Scheduler
    workers: JobMembers
    addresses: tuple[str, ...]  # Addresses of the job API.
    http: str  # URL of the window; empty: no window is served.
    links: asyncio.Task[None]  # Ends with an error if the service cannot continue.

    async def until_ready(self) -> None:
        """Wait until every switch of the network has its program and its jobs."""
        for link in map(self.registry.switches.link, self.registry.network.switches):
            async with link.changed:
                await link.changed.wait_for(lambda link=link: link.state is LinkState.READY)  # type: ignore[misc]


@contextlib.asynccontextmanager
async def running_service(options: ServiceOptions) -> AsyncIterator[RunningService]:
    """Run a service for the duration of the block; its jobs continue afterwards.

    Raises ControllerError if the configuration cannot be used.
    """
    files = CompiledFiles(options.program, options.p4info)
    for what, slots in (
        ("default number of slots", options.registry.slots),
        ("fewest slots of a job", options.registry.least_slots),
    ):
        most = files.capabilities.slots
        if isinstance(slots, int) and (not 0 < slots <= most or slots & (slots - 1)):
            raise ConfigError(
                f"the {what} must be a power of two, at most the {most} of the program, not {slots}"
            )
    for site in options.network.switches.values():
        if site.tls:
            site.tls.channel_credentials()  # Fails now rather than in the background.
    _check_addresses(options)  # Before the state's file is made.
    logging.getLogger("grpc._cython.cygrpc").addFilter(_without_traceback)
    async with contextlib.AsyncExitStack() as stack:
        http = _http_server(options)
        if http is not None:
            stack.callback(http.close)
        store = stack.enter_context(options.open_state(options.state))
        _check_names(options.network, store)
        registry, scheduler, sessions, workers = assembled(options, files, store)
        server = grpc.aio.server(options=_SERVER_OPTIONS)
        jobs_pb2_grpc.add_WorkersServicer_to_server(WorkersService(workers), server)  # type: ignore[no-untyped-call]
        aggregators = AggregatorsService(sessions)
        jobs_pb2_grpc.add_AggregatorsServicer_to_server(aggregators, server)  # type: ignore[no-untyped-call]
        jobs_pb2_grpc.add_OperatorsServicer_to_server(OperatorsService(scheduler), server)  # type: ignore[no-untyped-call]
        addresses = tuple(_listen(server, each, options) for each in options.listen)
        await server.start()
        stack.push_async_callback(server.stop, STOP_GRACE_S)
        if http is not None:
            http.start(registry, workers)
            stack.callback(http.close)
        links = asyncio.create_task(sessions.run())
        stack.push_async_callback(_cancelled, links)
        stack.callback(scheduler.close)
        yield RunningService(registry, scheduler, workers, addresses, http.url if http else "", links)


def assembled(
    options: ServiceOptions, files: CompiledFiles, store: JobStore
) -> tuple[JobRegistry, Scheduler, Sessions, JobMembers]:
    """Return the parts of a service behind its servers, with the jobs in the store."""
    registry = JobRegistry(options.network, store, files, options.registry, options.tls)
    scheduler = Scheduler(registry)
    sessions = Sessions(scheduler, options.election_id, options.open_writer)
    workers = JobMembers(scheduler)
    restore_jobs(scheduler, workers)
    return registry, scheduler, sessions, workers


def _check_names(network: ControlledNetwork, store: JobStore) -> None:
    """Refuse invalid names of switches and hosts, except names that an older state file has."""
    for name in (*network.switches, *network.hosts):
        try:
            check_name(name)
        except ValueError as expected:
            if name not in store.places():
                raise ConfigError(f"switch or host: {expected}") from None


async def serve(options: ServiceOptions, announce: Callable[[dict[str, Any]], None]) -> None:
    """Run a service until SIGINT, SIGTERM or SIGHUP.

    `options`: the service's configuration. `announce`: called with the addresses when all switches are ready. Raises
    ControllerError if the configuration cannot be used.
    """
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, asked.set)
    async with running_service(options) as service:
        log.info("job API on %s", ", ".join(service.addresses))
        stopping = asyncio.create_task(asked.wait())
        ready = asyncio.create_task(service.until_ready())
        await asyncio.wait([stopping, ready, service.links], return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            announce({"addresses": service.addresses, "http": service.http})
            await asyncio.wait([stopping, service.links], return_when=asyncio.FIRST_COMPLETED)
        for task in (stopping, ready):
            task.cancel()
        if service.links.done():
            service.links.result()
    log.info("stopped; jobs go on, their state is in %s", options.state)


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


def _check_addresses(options: ServiceOptions) -> None:
    """Refuse addresses that are written wrongly or open to other machines, and certificates that cannot be used."""
    for address in options.listen:
        check_target(address)
        if not options.tls and not address.startswith("unix:"):
            instead = "give a certificate (--tls-cert, --tls-key, --tls-ca), listen on 127.0.0.1 or unix:PATH"
            _refuse_remote(address.rpartition(":")[0], options, "the job API", instead)
    if options.tls:
        options.tls.server_credentials()
    if options.http is not None and not (options.tls and options.http_token):
        instead = "give a certificate (--tls-cert, --tls-key) and --http-token, serve them on 127.0.0.1"
        _refuse_remote(options.http[0], options, "the window and the metrics", instead)


def _http_server(options: ServiceOptions) -> "HttpServer | None":
    """Return the HTTP server, if one is configured; it listens, but does not answer yet."""
    if options.http is None:
        return None
    from controller.service.web import HttpServer

    tls = PLAINTEXT if is_loopback(options.http[0]) else options.tls
    return HttpServer(options.http, options.http_token, tls)


def _listen(server: Any, address: str, options: ServiceOptions) -> str:
    """Add an address to a server; return it with its port."""
    host, _, port = address.rpartition(":")
    if address.startswith("unix:"):
        _remove_stale_socket(Path(address.removeprefix("unix:")))
    try:
        if options.tls and not address.startswith("unix:"):
            bound = server.add_secure_port(address, options.tls.server_credentials())
        else:
            bound = server.add_insecure_port(address)
    except RuntimeError:
        raise ConfigError(
            f"the job API cannot listen on {address}: another controller may be using it; stop that one or choose another address"
        ) from None
    if address.startswith("unix:"):
        Path(address.removeprefix("unix:")).chmod(0o600)
        return address
    return f"{host}:{bound if port == '0' else port}"


def _refuse_remote(host: str, options: ServiceOptions, what: str, instead: str) -> None:
    """Refuse to serve unencrypted on an address that other machines reach, unless that is allowed."""
    if not (options.allow_remote or is_loopback(host)):
        raise ConfigError(
            f"{what} would be open to other machines on {host}: {instead}, or give --allow-remote"
        )


def _remove_stale_socket(path: Path) -> None:
    """Remove the socket that a killed controller left, as gRPC's error would not mention it."""
    with contextlib.suppress(OSError):
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            path.unlink()


def _without_traceback(record: logging.LogRecord) -> bool:
    """Replace gRPC's traceback about malformed messages by one line, as any client can send some."""
    if record.exc_info and isinstance(record.exc_info[1], DecodeError | UnicodeDecodeError):
        record.msg, record.args = "a call's bytes are no message of the job API: %s", (record.exc_info[1],)
        record.exc_info = record.exc_text = None
    return True
