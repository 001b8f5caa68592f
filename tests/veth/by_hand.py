"""The slot program by hand as XDP, compiled where clang is: what packets cost a program written for them alone.

As a process, ``python -m tests.veth.by_hand``, it is at interfaces of its network namespace until it is ended.
"""

import argparse
import json
import shutil
import signal
import socket
import struct
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from host_agent.wire import constants as c
from netsum.programs import compiled_program
from sim.switch import Exact, TableEntry, ir, load_program
from sim.switch.bpf import syscall
from sim.switch.bpf.btf import LOCK_TYPES, lock_btf
from sim.switch.bpf.emit import FLAGS
from sim.switch.bpf.loading import linked
from sim.switch.bpf.objects import BpfObject, read_elf
from sim.switch.bpf.switch import XdpSwitch
from sim.switch.bpf.syscall import Map
from tests.engine.traffic import SWITCH_IP, BenchJob, contribution
from tests.engine.twin import compile_slot_program

SOURCE = Path(__file__).with_name("slot_xdp.c")
_WORKER = struct.Struct("=6s2x5I4xQQ")


def compiler() -> str | None:
    """Return clang's path, None where there is none."""
    return shutil.which("clang")


def _compiled(job: BenchJob, *, forgets: bool) -> BpfObject:
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "slot.o"
        options = (compiler() or "clang", "-O2", "-ffreestanding", "-target", "bpf", "-mcpu=v3", "-c")
        compile_slot_program(options, SOURCE, made, job, EPOCH=job.epoch, FORGETS=int(forgets))
        return read_elf(made.read_bytes())


class XdpTwin:
    """The C program in the kernel with one job's workers, each at an interface of its own; programs go with this process.

    Parameters
    ----------
    interfaces
        The kernel's number of each worker's interface.
    forgets
        Whether a slot forgets who has contributed, so that one packet adds again and again.
    """

    def __init__(self, job: BenchJob, interfaces: Mapping[int, int], *, forgets: bool = False) -> None:
        code = _compiled(job, forgets=forgets)
        slot_bytes = 32 + 4 * job.lanes
        types = syscall.load_btf(lock_btf(slot_bytes))
        self.maps = {
            "slots": Map("slots", syscall.ARRAY, 4, slot_bytes, 2 * job.slots, btf=(types, *LOCK_TYPES)),
            "workers": Map("workers", syscall.HASH, 16, _WORKER.size, 64),
            "ports": Map("ports", syscall.HASH, 4, _WORKER.size, 64),
            "group": Map("group", syscall.DEVMAP, 4, 8, job.workers),
        }
        copy = syscall.load_program("copy", linked(code, "copy", self.maps), devmap=True)
        self.program = syscall.load_program("arrive", linked(code, "arrive", self.maps))
        for worker, interface in interfaces.items():
            numbers = job.ip(worker), SWITCH_IP, c.UDP_PORT, worker, job.workers
            entry = _WORKER.pack(job.mac(worker).to_bytes(6), *numbers, 0, 0)
            key = struct.pack("=4I", interface, job.ip(worker), job.token, job.job_id << 8 | worker)
            self.maps["workers"].update(key, entry)
            self.maps["ports"].update(struct.pack("=I", interface), entry)
            if not forgets:
                self.maps["group"].update(struct.pack("=I", worker), struct.pack("=II", interface, copy))


def _forgets(primitive: ir.Primitive) -> bool:
    array = primitive.args[0] if primitive.op == "register_write" else None
    return isinstance(array, ir.Named) and array.name.endswith("slot_seen")


def forgetful(lanes: int) -> ir.Program:
    """Return netsum's program without what notes who has contributed: one packet adds again and again."""
    program = load_program(compiled_program(lanes).json)
    actions = {
        number: replace(action, primitives=tuple(p for p in action.primitives if not _forgets(p)))
        for number, action in program.actions.items()
    }
    return replace(program, actions=actions)


def forgetful_switch(job: BenchJob) -> XdpSwitch:
    """Return a switch in the kernel with `forgetful`, to which the job's workers are admitted."""
    switch = XdpSwitch(forgetful(job.lanes))
    names: dict[str, Any] = {n.rpartition(".")[2]: n for n in switch.program.tables}
    names |= {a.name.rpartition(".")[2]: a.name for a in switch.program.actions.values()}
    own = TableEntry((Exact(SWITCH_IP),), 0, names["own_address"], (0x020000000064,))
    switch.table_insert(names["switch_address"], own)
    for worker in range(job.workers):
        key = tuple(map(Exact, (job.port_of(worker), job.ip(worker), job.job_id, worker, job.token)))
        admitted = TableEntry(
            key, 0, names["admit"], (job.epoch, job.workers, 2, 5, 0, 2 * job.slots, 1 << worker)
        )
        switch.table_insert(names["worker_admission"], admitted)
    return switch


def adding_ns(lanes: int, repeat: int = 100_000) -> dict[str, int]:
    """Return the cost of a packet that adds in the kernel's test runs, in ns: of the compiled program, and by hand with clang."""
    job, found = BenchJob(3, lanes), {}
    packet = contribution(job, 0, 0, struct.pack(f"!{lanes}i", *range(lanes)))
    switch = forgetful_switch(job)
    try:
        stub = switch.kernel.stub("arrive", {"ingress_port": job.port_of(0), FLAGS: 0})
        syscall.run_once(stub, packet, 1000)
        found["compiled"] = syscall.run_once(stub, packet, repeat).duration_ns
        lane = next(n for n in switch.program.registers if n.endswith(".lane_1"))
        assert switch.register_view(lane)[0] >= repeat, "the packet did not add"
    finally:
        switch.close()
    if compiler() is not None:
        twin = XdpTwin(job, {0: 1}, forgets=True)
        syscall.run_once(twin.program, packet, 1000)
        found["by hand"] = syscall.run_once(twin.program, packet, repeat).duration_ns
        slot = twin.maps["slots"].lookup(bytes(4)) or b""
        assert struct.unpack_from("=i", slot, 36)[0] >= repeat, "the packet did not add"
    return found


def main() -> None:
    """Be at interfaces until ended; a socket says that it is ready."""
    options = argparse.ArgumentParser(description=main.__doc__)
    options.add_argument("--interfaces", required=True, help="of the workers, in order: as in a,b")
    options.add_argument("--job", required=True, help="a `BenchJob`'s fields, as JSON")
    options.add_argument("--ready", required=True, help="a unix socket to make when it runs")
    chosen = options.parse_args()
    indices = {w: socket.if_nametoindex(name) for w, name in enumerate(chosen.interfaces.split(","))}
    twin = XdpTwin(BenchJob(**json.loads(chosen.job)), indices)
    for index in indices.values():
        syscall.attach_xdp(twin.program, index, syscall.NATIVE_MODE)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as ready:
        ready.bind(chosen.ready)
        ready.listen()
        signal.pause()


if __name__ == "__main__":
    main()
