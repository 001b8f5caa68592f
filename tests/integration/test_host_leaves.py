"""Ranks that share a host: real workers and processes, a switch on each host, and the root switch between them."""

import contextlib
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from controller.service.client import OperatorClient
from controller.service.network import ControlledNetwork, HostSite, SwitchSite
from controller.service.registry import RegistryOptions
from controller.service.serve import ServiceOptions
from host_agent.collectives.collective import Op
from host_agent.errors import ClosedCommunicatorError, NetsumError, PeerError
from host_agent.job_api import jobs_pb2
from host_agent.joining import Membership, join, leaf
from host_agent.transport.shared_memory import LocalLink
from host_agent.wire.constants import UDP_PORT
from netsum.programs import compiled_program
from netsum_common.channel import TlsFiles
from tests.controller.service_harness import ServiceThread, service_on, until
from tests.controller.test_service_tls import Authority
from tests.processes import with_words
from topologies.loopback import LoopbackTestbed

LANES = 64
OPS: tuple[Op, ...] = ("sum", "mean", "min", "max", "bor")
DEADLINE_S = 400.0
SOON_S = 3.0
KILLS = int(os.environ.get("NETSUM_KILLS", "3"))
RANKS = 4  # Two on each host.
CASES: list[tuple[type, Op]] = [
    *((np.float32, op) for op in OPS if op != "bor"),
    *((np.float64, op) for op in OPS if op != "bor"),
    *((np.int32, op) for op in OPS if op != "mean"),
    *((np.int64, op) for op in OPS if op != "mean"),
]


def mac_of(ip: str) -> str:
    return "02:00:" + ":".join(f"{int(part):02x}" for part in ip.split("."))


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[LoopbackTestbed]:
    with LoopbackTestbed(0, UDP_PORT, tmp_path, cabled=True) as bed:
        yield bed


def options_for(bed: LoopbackTestbed, folder: Path) -> ServiceOptions:
    """Two hosts on the one port of a switch: on loopback all addresses lead to it."""
    program = compiled_program(LANES)
    ips = [f"{bed.spec.ip.rpartition('.')[0]}.{number}" for number in (1, 2)]
    hosts = {f"h{n}": HostSite(f"h{n}", ip, mac_of(ip), "s1") for n, ip in enumerate(ips, 1)}
    switch = SwitchSite(
        "s1",
        bed.p4runtime_address,
        bed.spec.device_id,
        bed.spec.ip,
        bed.spec.mac,
        {host.mac: 0 for host in hosts.values()},
    )
    return ServiceOptions(
        network=ControlledNetwork({"s1": switch}, hosts),
        program=program.json,
        p4info=program.p4info,
        state=folder / "state.sqlite3",
        listen=(f"unix:{folder}/api.sock",),
        registry=RegistryOptions(leaf_s=DEADLINE_S, recovery_s=DEADLINE_S),
    )


class Ranks:
    """The ranks of a job, as threads: ranks 0 and 1 are on host h1, ranks 2 and 3 on host h2."""

    def __init__(self, service: ServiceThread, job: str, **options: object) -> None:
        hosts = [host.ip for host in service.options.network.hosts.values()]
        self.pool = ThreadPoolExecutor(RANKS)

        def joined(rank: int) -> Membership:
            return join(
                service.address, job=job, rank=rank, world_size=RANKS, addresses=[hosts[rank // 2]],
                timeout_s=DEADLINE_S, **options,  # type: ignore[arg-type]
            )  # fmt: skip

        self.memberships = list(self.pool.map(joined, range(RANKS)))

    def add(self, arrays: list[np.ndarray], op: Op = "sum") -> list[np.ndarray]:
        """All-reduce an array of each rank with a new communicator; whether its link is memory is in `in_memory`."""
        self.in_memory = [False] * RANKS

        def rank(number: int) -> np.ndarray:
            self.memberships[number].start_again(DEADLINE_S)
            with self.memberships[number].communicator(timeout_s=DEADLINE_S) as communicator:
                link = communicator._link
                self.in_memory[number] = isinstance(link, LocalLink) and link.is_attached
                return communicator.allreduce(arrays[number], op=op)

        return list(self.pool.map(rank, range(RANKS)))

    def close(self) -> None:
        for membership in self.memberships:
            membership.close()
        self.pool.shutdown()


def arrays_of(dtype: type, seed: int) -> list[np.ndarray]:
    stream = np.random.default_rng(seed)
    if np.issubdtype(dtype, np.floating):
        return [
            (stream.standard_normal(5_000) * 10.0 ** stream.integers(-6, 6)).astype(dtype)
            for _ in range(RANKS)
        ]
    return [stream.integers(-(2**20), 2**20, 5_000).astype(dtype) for _ in range(RANKS)]


def leaf_processes(job_folder: Path, controller: str = "") -> list[int]:
    """The leaves of this test, whose command lines name its controller: by default the socket in the folder."""
    return with_words("netsum.aggregator", controller or f"unix:{job_folder}/api.sock")


def test_ranks_of_a_host_share_a_leaf(bed: LoopbackTestbed, tmp_path: Path) -> None:
    options = options_for(bed, tmp_path)
    with service_on(options) as service, OperatorClient(service.address, timeout_s=DEADLINE_S) as operator:
        service.ready()
        ranks, plain = Ranks(service, "shared"), Ranks(service, "plain", host_leaf=False)
        try:
            tree = operator.job("shared").tree
            assert [(one.name[:7], one.parent, list(one.ranks)) for one in tree] == [
                ("s1", "", []), ("leaf-h1", "s1", [0, 1]), ("leaf-h2", "s1", [2, 3])
            ]  # fmt: skip
            assert not operator.job("plain").tree
            arrays = arrays_of(np.float32, 1)
            results, expected = ranks.add(arrays), plain.add(arrays)
            assert ranks.in_memory == [True] * RANKS
            for result in results:
                assert result.tobytes() == expected[0].tobytes()
            counted = [operator.job(job).counters["contributions"] for job in ("shared", "plain")]
            assert 2 * counted[0] == counted[1] > 0
            for dtype, op in CASES:
                arrays = arrays_of(dtype, 2)
                results, expected = ranks.add(arrays, op), plain.add(arrays, op)
                assert {one.tobytes() for one in results} == {one.tobytes() for one in expected}, (dtype, op)
        finally:
            ranks.close()
            plain.close()
        until(lambda: not leaf_processes(tmp_path))
        until(lambda: [switch.name for switch in operator.switches()] == ["s1"])


def kill_a_leaf(folder: Path, host: str) -> None:
    for pid in leaf_processes(folder):
        with contextlib.suppress(OSError):
            if f"\0leaf-{host}-".encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)


def test_a_leaf_that_is_killed_is_started_again_and_the_job_with_it(
    bed: LoopbackTestbed, tmp_path: Path
) -> None:
    options = options_for(bed, tmp_path)
    with service_on(options) as service, OperatorClient(service.address, timeout_s=DEADLINE_S) as operator:
        service.ready()
        ranks = Ranks(service, "killed")
        arrays = [np.full(5_000, rank, np.int32) for rank in range(RANKS)]
        try:
            assert (ranks.add(arrays)[0] == 6).all()
            before = operator.job("killed").epoch
            kill_a_leaf(tmp_path, "h2")
            until(
                lambda: (
                    operator.job("killed").epoch > before and operator.job("killed").state == jobs_pb2.RUNNING
                )
            )
            view = operator.job("killed")
            assert len(view.tree) == 3
            assert view.restarts == 1
            assert (ranks.add(arrays)[0] == 6).all()
            assert ranks.in_memory == [True] * RANKS
        finally:
            ranks.close()


def test_leaves_killed_in_the_middle_of_collectives(bed: LoopbackTestbed, tmp_path: Path) -> None:
    """NETSUM_KILLS times (3 by default): right sums or an error of the peers, then the next epoch with all leaves."""
    chance = random.Random(KILLS)
    arrays = [np.full(5_000, rank, np.int32) for rank in range(RANKS)]
    shared = set(os.listdir("/dev/shm"))
    rounds, errors, ended = [0] * RANKS, list[NetsumError](), threading.Event()

    def rank(number: int, membership: Membership) -> None:
        while not ended.is_set():
            try:
                membership.start_again(DEADLINE_S)
                with membership.communicator(timeout_s=SOON_S) as communicator:
                    link = communicator._link
                    while True:
                        assert (communicator.allreduce(arrays[number]) == 6).all()
                        rounds[number] += isinstance(link, LocalLink) and link.is_attached
            except NetsumError as error:
                errors.append(error)

    def all_add_in_memory() -> None:
        before = list(rounds)
        until(lambda: all(now > then for now, then in zip(rounds, before, strict=True)), str(errors[-3:]))

    with service_on(options_for(bed, tmp_path)) as service:
        service.ready()
        ranks = Ranks(service, "killed-often")
        threads = [
            ranks.pool.submit(rank, number, membership) for number, membership in enumerate(ranks.memberships)
        ]
        try:
            for _ in range(KILLS):
                all_add_in_memory()
                time.sleep(chance.uniform(0, 0.1))
                kill_a_leaf(tmp_path, chance.choice(("h1", "h2")))
            all_add_in_memory()
        finally:
            ended.set()
            ranks.close()
        assert [thread.result(DEADLINE_S) for thread in threads] == [None] * RANKS
        assert all(isinstance(error, (PeerError, ClosedCommunicatorError)) for error in errors[: -4 * RANKS])
        until(lambda: not leaf_processes(tmp_path))
    assert set(os.listdir("/dev/shm")) <= shared
    until(lambda: "memfd:netsum-rings" not in Path("/proc/self/maps").read_text())


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")
def test_a_leaf_takes_the_certificates_of_its_ranks(bed: LoopbackTestbed, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    files = TlsFiles(authority.ca, *authority.issue("shared"))
    options = replace(options_for(bed, tmp_path), listen=("127.0.0.1:0",), tls=files)
    with (
        service_on(options) as service,
        OperatorClient(service.address, tls=files, timeout_s=DEADLINE_S) as operator,
    ):
        service.ready()
        ranks = Ranks(service, "secret", tls=files)
        try:
            assert len(operator.job("secret").tree) == 3
            arrays = [np.full(5_000, rank, np.int32) for rank in range(RANKS)]
            assert (ranks.add(arrays)[0] == 6).all()
            assert ranks.in_memory == [True] * RANKS
            assert leaf_processes(tmp_path, service.address)
        finally:
            ranks.close()
        until(lambda: not leaf_processes(tmp_path, service.address))


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="another user can only be tried by root")
def test_another_user_is_refused_at_a_leaf(bed: LoopbackTestbed, tmp_path: Path) -> None:
    """At the socket that keeps a leaf running, and at the one where its ranks get memory."""
    with service_on(options_for(bed, tmp_path)) as service:
        service.ready()
        ranks = Ranks(service, "ours")
        try:
            arrays = [np.full(5_000, rank, np.int32) for rank in range(RANKS)]
            ranks.add(arrays)
            switches = sorted({membership.admission.switch for membership in ranks.memberships})
            names = [line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
            digest = hashlib.sha256(service.address.encode()).hexdigest()[:8]
            keeping = [
                name[1:] for name in names if name.startswith("@netsum-leaf") and name.endswith(digest)
            ]
            assert len(set(keeping)) == len(switches) == 2
            assert {f"@netsum/{host}:{port}" for host, port in switches} <= set(names)
            program = f"""
import os, socket
from netsum_common.rings import AttachError, RingShape, attach
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.bind(("127.0.0.1", 0))
os.setuid(65534)
for name in {sorted(set(keeping))!r}:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
        peer.settimeout({DEADLINE_S})
        peer.connect("\\0" + name)
        print("closed" if peer.recv(1) == b"" else "kept")
for switch in {switches!r}:
    try:
        attach(switch, own, RingShape(64, 320), {DEADLINE_S})
        print("attached")
    except AttachError:
        print("refused")
"""
            outcome = subprocess.run(
                [sys.executable, "-c", program],
                capture_output=True,
                text=True,
                timeout=DEADLINE_S,
                check=True,
            )
            assert outcome.stdout.split() == ["closed"] * 2 + ["refused"] * 2
            assert (ranks.add(arrays)[0] == 6).all()
        finally:
            ranks.close()
        until(lambda: not leaf_processes(tmp_path))


def test_a_restart_of_the_controller_disturbs_no_leaf(bed: LoopbackTestbed, tmp_path: Path) -> None:
    options = options_for(bed, tmp_path)
    ranks = None
    arrays = [np.full(5_000, rank, np.int32) for rank in range(RANKS)]
    try:
        with service_on(options) as service:
            service.ready()
            ranks = Ranks(service, "goes-on")
            processes = set(leaf_processes(tmp_path))
        with (
            service_on(options) as service,
            OperatorClient(service.address, timeout_s=DEADLINE_S) as operator,
        ):
            service.ready()
            until(
                lambda: all(one.outbox for one in service.service.registry.jobs["goes-on"].members.values())
            )
            until(lambda: all(host.attached for host in service.service.registry.aggregators.hosts.values()))
            until(lambda: len(service.service.registry.switches.ready) == 3)
            view = operator.job("goes-on")
            assert (view.restarts, len(view.tree)) == (0, 3)
            assert (ranks.add(arrays)[0] == 6).all()
            assert operator.job("goes-on").restarts == 0
            assert set(leaf_processes(tmp_path)) == processes
            ranks.close()
    finally:
        if ranks is not None:
            ranks.close()


def test_a_job_goes_on_without_a_leaf_that_does_not_start(
    bed: LoopbackTestbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaf, "command_of", lambda _: [sys.executable, "-P", "-m", "netsum.no_such_module"])
    options = options_for(bed, tmp_path)
    with service_on(options) as service, OperatorClient(service.address, timeout_s=DEADLINE_S) as operator:
        service.ready()
        ranks = Ranks(service, "without")
        try:
            assert not operator.job("without").tree
            assert (ranks.add([np.full(500, rank, np.int32) for rank in range(RANKS)])[0] == 6).all()
        finally:
            ranks.close()
