"""The kernel as a switch, at real interfaces: packets, counters, interfaces that come and go, ends of all kinds."""

import errno
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import grpc
import pytest
from scapy.utils import PcapReader

from netsum.programs import compiled_program
from sim.switch.bpf import syscall
from sim.switch.bpf.pins import Pins
from sim.switch.bpf.ports import NATIVE_MTU
from tests.controller.switch_controller import SwitchController
from tests.dataplane.dataplane import xdp
from tests.engine.traffic import SWITCH_IP, SWITCH_MAC, BenchJob, contribution
from tests.sim.ports.cables import DEADLINE_S, Cables, end_of, send_all
from tests.sim.ports.conftest import Start
from tests.sim.ports.test_interface_process import ECHO, INTERFACES, await_status, frame
from topologies.namespaces import missing_for_namespaces, run

lacking = missing_for_namespaces() or xdp.why_not()
pytestmark = [pytest.mark.root, pytest.mark.skipif(lacking is not None, reason=str(lacking))]

ENGINE = ["--engine", "xdp", *INTERFACES]
_PROGRAM_BY_ID = 13


@pytest.fixture
def cables() -> Iterator[Cables]:
    # gRPC's threads begin here, outside the namespace, and stay outside: where earlier tests have left them.
    with grpc.insecure_channel("unix:nowhere"), Cables(2) as up:
        for end in ("h1", "h2"):
            take_redirects(end)
        yield up


def take_redirects(end: str) -> None:
    """Let a host's end have what XDP sends."""
    run("ethtool", "-K", end, "gro", "on")


def programs_at(*interfaces: str) -> list[int]:
    """Return the numbers of the XDP programs at interfaces; 0 where there is none."""
    found = {one["ifname"]: one for one in json.loads(run("ip", "-j", "-d", "link"))}
    return [found[name].get("xdp", {}).get("prog", {}).get("id", 0) for name in interfaces]


def is_loaded(program: int) -> bool:
    """Return whether the kernel has a program."""
    try:
        os.close(syscall._bpf(_PROGRAM_BY_ID, struct.pack("=I", program), "look for a program"))
    except syscall.BpfError as error:
        return error.errno != errno.ENOENT
    return True


def await_gone(programs: list[int]) -> None:
    """The kernel lets go of programs a moment after their last user."""
    deadline = time.monotonic() + DEADLINE_S
    while any(map(is_loaded, programs)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def await_detached() -> None:
    """The kernel detaches a program a moment after its link's last user has gone."""
    deadline = time.monotonic() + DEADLINE_S
    while programs_at("s1", "s2") != [0, 0]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def exchange(interface: str, number: int) -> None:
    with end_of(interface) as end:
        end.send(frame(number))
        assert end.recv(200) == frame(number)


def test_packets_counters_and_interfaces_that_come_and_go(
    cables: Cables, start: Start, tmp_path: Path
) -> None:
    status = tmp_path / "s.status"
    switch = start(*ENGINE, "--status", status, *ECHO)
    with end_of("h1") as one:
        send_all(one, map(frame, range(300)))
        assert [one.recv(200) for _ in range(300)] == [frame(number) for number in range(300)]
    shown = switch.status(status)["ports"]
    assert (shown["1"]["mode"], shown["1"]["up"], shown["1"]["received"], shown["1"]["sent"]) == (
        "native",
        True,
        300,
        300,
    )
    assert (shown["2"]["received"], shown["2"]["sent"]) == (0, 0)
    cables.ip("link", "set", "s1", "down")
    assert not switch.status(status)["ports"]["1"]["up"]
    cables.up("s1")
    exchange("h1", 1)
    cables.ip("link", "delete", "s2")
    await_status(switch, status, lambda shown: not shown["ports"]["2"]["up"])
    cables.add(2)
    take_redirects("h2")
    shown = await_status(switch, status, lambda shown: shown["ports"]["2"]["up"])
    assert shown["ports"]["2"]["mode"] == "native"
    exchange("h2", 2)


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_behind(cables: Cables, start: Start, ending: signal.Signals) -> None:
    switch = start(*ENGINE, *ECHO)
    programs = programs_at("s1", "s2")
    assert all(map(is_loaded, programs))
    switch.stop(ending)
    await_gone(programs)
    assert programs_at("s1", "s2") == [0, 0]


def test_a_second_switch_does_not_take_the_interfaces_of_the_first(cables: Cables, start: Start) -> None:
    start(*ENGINE, *ECHO)
    said = refusal(*ENGINE, *ECHO)
    assert "switch port 1 cannot use interface s1: another XDP program is there" in said
    exchange("h1", 3)


def test_an_interface_whose_driver_refuses_has_the_program_behind_the_driver(
    cables: Cables, start: Start, tmp_path: Path
) -> None:
    for end in ("s1", "h1"):
        cables.ip(
            "link", "set", end, "mtu", "9000"
        )  # more than a page, which XDP in the driver of veth does not take
    switch = start(*ENGINE, "--status", tmp_path / "s.status", *ECHO)
    ports = switch.status(tmp_path / "s.status")["ports"].values()
    assert [port["mode"] for port in ports] == ["generic", "native"]
    reason = "the program runs behind the driver of s1 (generic, slower), which refuses it: Numerical result out of range"
    reason += f"; give both ends of a veth an MTU of at most {NATIVE_MTU:,} bytes"
    assert [port["mode_reason"] for port in ports] == [reason, ""]
    exchange("h1", 4)
    assert f"switch port 1: {reason}" in switch.stop()[2]


@pytest.mark.parametrize(("mtu", "mode"), [(NATIVE_MTU, "native"), (NATIVE_MTU + 1, "generic")])
def test_the_largest_mtu_with_which_the_driver_of_a_veth_takes_a_program(
    cables: Cables, start: Start, tmp_path: Path, mtu: int, mode: str
) -> None:
    cables.ip("link", "set", "h1", "mtu", str(mtu))
    switch = start(*ENGINE, "--status", tmp_path / "s.status", *ECHO)
    ports = switch.status(tmp_path / "s.status")["ports"].values()
    assert [port["mode"] for port in ports] == [mode, "native"]


def refusal(*arguments: object, before: Sequence[str] = ()) -> str:
    command = [sys.executable, "-m", "sim.switch.serve", "--p4runtime", "127.0.0.1:0", *map(str, arguments)]
    done = subprocess.run(
        [*before, *command], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode in (1, 2), done.stdout + done.stderr
    (line,) = done.stderr.splitlines()
    return line


def test_what_is_missing_is_named_in_the_error(cables: Cables) -> None:
    nowhere = refusal("--engine", "xdp", "--interface", "1@nowhere")
    assert "switch port 1 could not open interface nowhere: there is none" in nowhere
    assert "give each port as --interface PORT@NAME" in refusal("--engine", "xdp")
    assert "the engine xdp loses no packets on purpose" in refusal(*ENGINE, "--drop-ppm", "1")
    if shutil.which("setpriv"):
        said = refusal(*ENGINE, *ECHO, before=["setpriv", "--bounding-set=-all", "--inh-caps=-all"])
        assert "BPF needs the capabilities CAP_BPF and CAP_NET_ADMIN, or root" in said


def test_a_kernel_without_type_information(cables: Cables, start: Start) -> None:
    """The kernel needs no type information of its own (/sys/kernel/btf); one that takes none is refused, and nothing stays."""
    hide = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /sys/kernel/btf && exec "$@"', "sh"]
    program = compiled_program(64)
    locks = ["--program", program.json, "--p4info", program.p4info]  # The echo program has none, so no types.
    said = refusal(*ENGINE, *locks, before=[*hide, sys.executable, "-c", WITHOUT_BTF])
    assert "the kernel takes no type information (BTF) of BPF programs: Linux 6.6 or newer is needed" in said
    assert programs_at("s1", "s2") == [0, 0]
    start(*ENGINE, *locks, before=hide)


WITHOUT_BTF = """
import ctypes, os, struct, sys
# seccomp: the system call bpf(2) with the command BTF_LOAD (18) has the result EINVAL, as where it does not exist.
steps = [(0x20, 0, 0, 0), (0x15, 0, 3, 321), (0x20, 0, 0, 16), (0x15, 0, 1, 18), (6, 0, 0, 0x50016), (6, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code))
call = ctypes.CDLL(None, use_errno=True).prctl
if call(38, 1, 0, 0, 0) or call(22, 2, program):
    sys.exit(os.strerror(ctypes.get_errno()))
os.execvp(sys.argv[1], sys.argv[1:])
"""


def test_packets_are_captured(cables: Cables, start: Start, tmp_path: Path) -> None:
    switch = start(*ENGINE, "--pcap", tmp_path, *ECHO)
    with end_of("h1") as one:
        for number in range(50):
            one.send(frame(number))
            assert one.recv(200) == frame(number)
    switch.stop()
    for way in ("in", "out"):
        with PcapReader(str(tmp_path / f"s1_{way}.pcap")) as captured:
            assert [bytes(packet) for packet in captured] == [frame(number) for number in range(50)]


@pytest.fixture
def pins(tmp_path: Path) -> Iterator[Path]:
    """A folder for a switch in a BPF filesystem of the test's own."""
    mounted = tmp_path / "bpf"
    mounted.mkdir()
    run("mount", "-t", "bpf", "bpf", str(mounted))
    yield mounted / "switch"
    run("umount", "--lazy", str(mounted))


def test_a_pinned_switch_goes_on_without_its_process_and_is_taken_over(
    cables: Cables, start: Start, tmp_path: Path, pins: Path
) -> None:
    """A worker contributes, the switch's process is killed, the other contributes: the sum comes; the next process knows all."""
    # A TCP connection of gRPC starts in whichever namespace its threads are in; a unix socket is the same in all.
    options = [*ENGINE, "--pin", pins, "--p4runtime", f"unix:{tmp_path}/p4runtime.sock"]
    first = start(*options)
    plan = BenchJob(2, 64, slots=32)
    program = compiled_program(64)
    with SwitchController.connect(
        first.ready["p4runtime"], program=program.json, p4info=program.p4info, timeout_s=DEADLINE_S
    ) as controller:
        controller.set_pipeline()
        controller.set_switch_address(
            socket.inet_ntoa(SWITCH_IP.to_bytes(4)), SWITCH_MAC.to_bytes(6).hex(":")
        )
        given = controller.create_job("pinned", plan.endpoints(), 32)
    job = BenchJob(2, 64, given.job_id, given.epoch, given.token, 32)
    lanes = [struct.pack("!64i", *range(start, start + 64)) for start in (0, 1000)]
    programs = programs_at("s1", "s2")
    said = refusal(*options)
    assert f"another process has the switch that is pinned at {pins}: stop that one" in said

    def contribute(worker: int, chunk: int) -> None:
        with end_of(f"h{worker + 1}") as end:
            end.send(contribution(job, worker, chunk, lanes[worker]))
            if worker == 1:
                assert end.recv(2000)[-256:] == struct.pack("!64i", *range(1000, 1128, 2))

    contribute(0, 0)
    first.stop(signal.SIGKILL)
    contribute(1, 0)
    contribute(0, 1)
    status = tmp_path / "s.status"
    second = start(*options, "--status", status)
    assert [port["mode"] for port in second.status(status)["ports"].values()] == ["native", "native"]
    contribute(1, 1)
    with SwitchController.connect(
        second.ready["p4runtime"], program=program.json, p4info=program.p4info, timeout_s=DEADLINE_S
    ) as controller:
        found = controller.tables.reconcile(
            [given], (socket.inet_ntoa(SWITCH_IP.to_bytes(4)), SWITCH_MAC.to_bytes(6).hex(":")), {}, set()
        )
        assert (found.written, found.changed, found.removed) == (0, 0, 0)
        assert controller.tables.admitted(given) == {0: 2, 1: 2}
        assert controller.tables.counters([given.job_id])[given.job_id]["contributions"] == 4
    assert programs != programs_at("s1", "s2") != [0, 0]
    second.stop()
    assert programs_at("s1", "s2") != [0, 0]
    shutil.rmtree(pins)
    await_gone(programs)
    await_detached()


def test_what_cannot_be_pinned_or_taken_over(
    cables: Cables, start: Start, tmp_path: Path, pins: Path
) -> None:
    assert "expected a new folder of a BPF filesystem" in refusal(*ENGINE, "--pin", tmp_path / "plain")
    assert "--pin works only with --engine xdp" in refusal("--pin", pins)
    start(*ENGINE, "--pin", pins, *ECHO).stop()
    exchange("h1", 5)
    kept = Pins(pins)
    identity = kept.records()[0]
    kept._log[bytes(kept._log).index(identity)] ^= 1
    kept.close()
    other = start(*ENGINE, "--pin", pins)
    await_detached()
    code, _, said = other.stop()
    assert code == 0
    assert "cannot go on, so the switch is empty: " in said
    assert "it is of another program, or of another version of netsum" in said
