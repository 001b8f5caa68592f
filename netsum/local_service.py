"""A switch and its controller on loopback, for jobs that ask for one: ``python -m netsum.local_service --places 4``.

Who wants to take part connects over TCP and stays connected; lines of JSON go both ways. The worker says which job
it means and its *place* (the switch port it is on), is told the address of that place, says the UDP port it has there,
and gets its admission when all workers of the job have come. A connection that ends is a worker that left: the others are told,
and the job ends with the last of them. So nobody needs to say goodbye, and one that was killed is missed at once.
"""

import argparse
import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controller.errors import ControllerError, JobRefusedError
from controller.jobs import Job, WorkerEndpoint
from controller.switch_controller import SwitchController
from host_agent.errors import NetsumError
from host_agent.wire.constants import MAX_WORKERS, UDP_PORT
from netsum.digits.training import program_switch
from netsum.programs import compiled_program
from topologies.children import TestbedError, ending_in_order
from topologies.hosts import Host
from topologies.loopback import LoopbackTestbed
from topologies.runs import run_folder

FIRST_WORKER_TIMEOUT_S = 60.0
"""How long a service that ends with its last worker waits for the first one."""
LOOK_S = 0.5
"""How often the service looks whether its switch still runs."""
FAILED_RUNS = Path("runs")


class RefusedError(NetsumError):
    """A worker asked for what cannot be; the message goes to it."""


@dataclass
class _Member:
    endpoint: WorkerEndpoint
    writer: asyncio.StreamWriter


@dataclass
class _Gathering:
    """A job and who has come for it; it begins when all have."""

    num_workers: int
    members: dict[int, _Member] = field(default_factory=dict)
    job: Job | None = None

    def tell(self, **message: object) -> None:
        for member in self.members.values():
            _write(member.writer, message)


class JobDesk:
    """Takes workers' connections and makes jobs of them.

    Parameters
    ----------
    controller
        Of the switch, programmed.
    hosts
        The places, by number.
    slots
        How many slots a job gets, if as many are free; a power of two.
    """

    def __init__(self, controller: SwitchController, hosts: Sequence[Host], slots: int) -> None:
        self._controller = controller
        self._hosts = hosts
        self._slots = slots
        self._gatherings: dict[str, _Gathering] = {}
        self._connections = 0
        self.unused = asyncio.Event()

    def end_if_unused(self) -> None:
        """Set `unused` if nobody is connected."""
        if self._connections == 0:
            self.unused.set()

    def end(self, reason: str) -> None:
        """Tell all workers that it is over."""
        for gathering in self._gatherings.values():
            gathering.tell(ended=reason)
            gathering.members.clear()

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end."""
        self._connections += 1
        try:
            await self._attend(reader, writer)
        except asyncio.CancelledError:  # The service ends. asyncio's streams would print this one.
            pass
        except (RefusedError, ControllerError) as refusal:
            _write(writer, {"error": str(refusal)})
        except (OSError, ValueError, KeyError, TypeError) as fault:
            _write(writer, {"error": f"expected lines of JSON as netsum's workers send them ({fault!r})"})
        finally:
            with contextlib.suppress(OSError):
                writer.close()
            self._connections -= 1
            self.end_if_unused()

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wish = await _read(reader)
        if wish is None:
            return
        name, worker_id, num_workers = str(wish["job"]), int(wish["worker"]), int(wish["workers"])
        host = self._place(int(wish["place"]))
        _write(writer, {"ip": host.ip})
        here = await _read(reader)
        if here is None:
            return
        endpoint = WorkerEndpoint(
            port=host.port, ip=host.ip, mac=host.mac, udp_port=int(here["udp_port"]), switch=host.switch
        )
        gathering = self._gatherings.setdefault(name, _Gathering(num_workers))
        try:
            self._join(name, gathering, worker_id, num_workers, _Member(endpoint, writer))
            while await _read(reader) is not None:
                pass
        finally:
            self._leave(name, gathering, worker_id, writer)

    def _place(self, number: int) -> Host:
        if not 0 <= number < len(self._hosts):
            raise RefusedError(f"the switch has places 0…{len(self._hosts) - 1}, not {number}")
        return self._hosts[number]

    def _join(
        self, name: str, gathering: _Gathering, worker_id: int, num_workers: int, member: _Member
    ) -> None:
        if num_workers != gathering.num_workers:
            refusal = (
                f"the workers do not agree how many they are: worker {worker_id} says {num_workers}, "
                f"others said {gathering.num_workers}"
            )
            gathering.tell(error=refusal)
            raise RefusedError(refusal)
        if not 0 <= worker_id < num_workers:
            raise RefusedError(f"a job of {num_workers} has workers 0…{num_workers - 1}, not {worker_id}")
        if worker_id in gathering.members or gathering.job is not None:
            raise RefusedError(f"worker {worker_id} of {name} has come twice")
        gathering.members[worker_id] = member
        missing = sorted(set(range(num_workers)) - gathering.members.keys())
        if missing:
            gathering.tell(missing=missing)
            return
        try:
            gathering.job = self._create(
                name, [gathering.members[each].endpoint for each in range(num_workers)]
            )
        except ControllerError as fault:
            gathering.tell(error=str(fault))
            return
        for each, admission in enumerate(gathering.job.admissions):
            _write(gathering.members[each].writer, {"admission": admission.to_json()})

    def _create(self, name: str, endpoints: list[WorkerEndpoint]) -> Job:
        """Create the job with as many slots as are to be had."""
        slots = self._slots
        while True:
            try:
                return self._controller.create_job(name, endpoints, slots)
            except JobRefusedError:
                if slots == 1 or slots <= self._controller.free_slots:
                    raise
                slots //= 2

    def _leave(self, name: str, gathering: _Gathering, worker_id: int, writer: asyncio.StreamWriter) -> None:
        member = gathering.members.get(worker_id)
        if member is None or member.writer is not writer:
            return
        del gathering.members[worker_id]
        gathering.tell(left=worker_id)
        if not gathering.members:
            del self._gatherings[name]
            if gathering.job is not None:
                with contextlib.suppress(ControllerError):  # The switch may have gone first.
                    self._controller.end_job(gathering.job)


async def _read(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    try:
        line = await reader.readline()
    except ConnectionError:
        return None
    message: dict[str, Any] | None = json.loads(line) if line else None
    return message


def _write(writer: asyncio.StreamWriter, message: dict[str, object]) -> None:
    with contextlib.suppress(OSError):
        writer.write(json.dumps(message).encode() + b"\n")


async def _serve(
    controller: SwitchController,
    testbed: LoopbackTestbed,
    options: argparse.Namespace,
    announcement: "_Announcement",
) -> None:
    desk = JobDesk(controller, testbed.hosts, options.slots)
    host, _, port = options.listen.rpartition(":")
    server = await asyncio.start_server(desk.meet, host, int(port))
    listening = server.sockets[0].getsockname()
    announcement.tell(address=f"{listening[0]}:{listening[1]}")
    # Whoever waits for the last worker to leave waits also for the first to come.
    asyncio.get_running_loop().call_later(FIRST_WORKER_TIMEOUT_S, desk.end_if_unused)
    while not (options.until_unused and desk.unused.is_set()):
        if not testbed.switch.running:  # Ending tells the workers sooner than their deadlines.
            fault = testbed.switch.how_it_ended()
            desk.end(fault)
            raise TestbedError(fault)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(
                desk.unused.wait() if options.until_unused else asyncio.Event().wait(), LOOK_S
            )
    server.close()


class _Announcement:
    """One line of JSON for whoever started us."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def tell(self, **message: object) -> None:
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
    parser.add_argument("--lanes", type=int, default=256, help="int32 values a packet carries: 64 or 256")
    parser.add_argument("--slots", type=int, default=64, help="slots of a job, a power of two")
    parser.add_argument("--drop-ppm", type=int, default=0, help="packets per million to lose, each way")
    parser.add_argument("--listen", default="127.0.0.1:0", metavar="HOST:PORT")
    parser.add_argument("--until-unused", action="store_true", help="end with the last connection")
    parser.add_argument("--ready-fd", type=int, help="descriptor to write a line of JSON to when ready")
    options = parser.parse_args(arguments)
    announcement = _Announcement(options.ready_fd)
    try:
        if not 1 <= options.places <= MAX_WORKERS:
            raise RefusedError(f"one switch serves 1 to {MAX_WORKERS} processes, not {options.places}")
        program = compiled_program(options.lanes)
        with (
            ending_in_order(),
            run_folder(keep_on_error=FAILED_RUNS) as folder,
            LoopbackTestbed(options.places, UDP_PORT, folder, drop_ppm=options.drop_ppm) as testbed,
            SwitchController.connect(
                testbed.p4runtime_address,
                program=program.json,
                p4info=program.p4info,
                device_id=testbed.device_id,
            ) as controller,
        ):
            program_switch(controller, testbed)
            asyncio.run(_serve(controller, testbed, options, announcement))
    except (NetsumError, ControllerError, TestbedError, ValueError, OSError) as fault:
        announcement.tell(error=str(fault))
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
