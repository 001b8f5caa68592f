"""A switch and its controller on loopback, for jobs that ask for one: ``python -m netsum.local_service --places 4``.

The loopback testbed and the controller service in one process, without a memory: both end together. Rank r gets
the r-th *place* (switch port) if no other worker has it, else one that the fewest others have. With ``--switches 2`` the places
are in turns on two switches with a cable between them, which add in a tree.
"""

import argparse
import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from controller.service.registry import RegistryOptions
from controller.service.serve import RunningService, ServiceOptions, running_service
from host_agent.errors import NetsumError
from host_agent.job_api.slot_request import Share
from host_agent.wire.constants import MAX_CHILDREN, UDP_PORT
from netsum.programs import CompiledProgram, compiled_program
from netsum.star_service import cabled_network, star_network
from netsum_common.channel import TlsFiles
from netsum_common.lane_counts import LOCAL_LANES
from topologies.children import TestbedError, ending_in_order, uninterrupted
from topologies.loopback import LoopbackTestbed
from topologies.run_folder import CONTROLLER_SOCKET
from topologies.runs import run_folder

FIRST_WORKER_TIMEOUT_S = 60.0  # How long a service that ends with its last worker waits for the first one.
POLL_S = 0.2  # How often the service checks whether its switch still runs, and whether a worker is connected.
FAILED_RUNS = Path("runs")
DEFAULT_SLOTS = Share(1 / 32)
"""Slots of a job: 128 of the switch's 4,096 for the first one. With fewer the processes wake each other more often than they
work; with more, chunks in flight leave the caches."""


class LocalServiceError(NetsumError):
    """The service cannot be started as requested."""


async def _serve(
    testbeds: Sequence[LoopbackTestbed],
    program: CompiledProgram,
    options: argparse.Namespace,
    announcement: "_Announcement",
    interrupted: Sequence[int],
) -> None:
    service_options = ServiceOptions(
        network=star_network(testbeds[0]) if len(testbeds) == 1 else cabled_network(testbeds),
        program=program.json,
        p4info=program.p4info,
        listen=(options.listen or f"unix:{testbeds[0].folder / CONTROLLER_SOCKET}",),
        tls=TlsFiles(),
        registry=RegistryOptions(slots=options.slots or DEFAULT_SLOTS),
    )
    async with running_service(service_options) as service:
        ready = asyncio.create_task(service.until_ready())
        await _supervise(testbeds, service, until=lambda: interrupted or ready.done())
        if interrupted:
            return
        ready.result()
        if options.ready_fd is not None:
            _log_to(testbeds[0].folder / "service.log")
        announcement.send(address=service.addresses[0])
        unused = _Unused(service)
        await _supervise(testbeds, service, until=lambda: interrupted or (options.until_unused and unused()))


def _log_to(path: Path) -> None:
    """Write standard error to a file from now on.

    A reader of the caller's standard error would otherwise wait for this process too.
    """
    with path.open("ab") as log:
        os.dup2(log.fileno(), sys.stderr.fileno())


async def _supervise(
    testbeds: Sequence[LoopbackTestbed], service: RunningService, until: Callable[[], object]
) -> None:
    """Wait until something holds, or a switch or the links to it end."""
    while not until():
        ended = [each.switch for each in testbeds if not each.switch.running]
        if ended:  # Ending notifies the workers sooner than their deadlines.
            fault = ended[0].how_it_ended()
            service.scheduler.end_all(fault)
            await asyncio.sleep(POLL_S)
            raise TestbedError(fault)
        if service.links.done():
            service.links.result()
        await asyncio.sleep(POLL_S)


class _Unused:
    """Whether no worker is connected, neither before the first one nor after the last one."""

    def __init__(self, service: RunningService) -> None:
        self._service = service
        self._used = False
        self._give_up_at = asyncio.get_running_loop().time() + FIRST_WORKER_TIMEOUT_S

    def __call__(self) -> bool:
        workers = self._service.workers
        in_use = bool(workers.streams or self._service.registry.jobs)
        # A short job may have come and gone between two looks.
        self._used = self._used or in_use or workers.left > 0
        return not in_use and (self._used or asyncio.get_running_loop().time() > self._give_up_at)


class _Announcement:
    """Print one line of JSON for the process that started this one."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def send(self, **message: object) -> None:
        line = json.dumps(message) + "\n"
        if self._descriptor is None:
            print(line, end="", file=sys.stderr if "error" in message else sys.stdout, flush=True)
            return
        with contextlib.suppress(BrokenPipeError):  # Who started us has ended; without workers so shall we.
            os.write(self._descriptor, line.encode())
        os.close(self._descriptor)
        self._descriptor = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM, or until the last worker has left."""
    parser = argparse.ArgumentParser(
        prog="python -m netsum.local_service", description=(__doc__ or "").split(":")[0]
    )
    parser.add_argument("--places", type=int, required=True, help="ports of the switch, one for each process")
    parser.add_argument(
        "--lanes",
        type=int,
        default=LOCAL_LANES,
        help="int32 values a packet carries, as many as a compiled program has",
    )
    parser.add_argument(
        "--slots", type=int, help="slots of a job, a power of two; default: an eighth of those free"
    )
    parser.add_argument("--drop-ppm", type=int, default=0, help="packets per million to lose, each way")
    parser.add_argument("--switches", type=int, default=1, help="1, or 2 with a cable between them")
    parser.add_argument(
        "--listen", metavar="HOST:PORT", help="default: a unix socket, which no TLS variable concerns"
    )
    parser.add_argument("--until-unused", action="store_true", help="end with the last connection")
    parser.add_argument("--ready-fd", type=int, help="descriptor to write a line of JSON to when ready")
    options = parser.parse_args(arguments)
    announcement = _Announcement(options.ready_fd)
    try:
        if not 1 <= options.places <= MAX_CHILDREN:
            raise LocalServiceError(f"one switch serves 1 to {MAX_CHILDREN} processes, not {options.places}")
        if options.switches not in (1, 2):
            raise LocalServiceError(f"expected 1 or 2 switches, not {options.switches}")
        program = compiled_program(options.lanes)
        with (
            ending_in_order(),
            run_folder(keep_on_error=FAILED_RUNS) as folder,
            contextlib.ExitStack() as stack,
        ):
            testbeds = []
            for number in range(options.switches):
                logs = folder / f"s{number + 1}" if number else folder
                logs.mkdir(exist_ok=True)
                places = (options.places + options.switches - 1 - number) // options.switches
                testbed = LoopbackTestbed(places, UDP_PORT, logs, options.drop_ppm, options.switches > 1)
                testbeds.append(stack.enter_context(testbed))
            # An exception of a signal's handler would end whatever task runs, with a traceback of its own.
            with uninterrupted() as interrupted:
                asyncio.run(_serve(testbeds, program, options, announcement, interrupted))
    except (NetsumError, ValueError, OSError) as fault:
        announcement.send(error=str(fault))
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
