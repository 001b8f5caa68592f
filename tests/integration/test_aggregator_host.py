"""A job whose slots are on a host: real workers, a real agent, and the same P4 program in its embedded switch."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from controller.service.client import OperatorClient
from controller.service.registry import RegistryOptions
from controller.service.serve import ServiceOptions
from host_agent.joining import join
from host_agent.joining.addresses import own_addresses
from host_agent.wire.constants import POOL_SLOTS, UDP_PORT
from netsum.aggregator import Agent, AgentPlan, AggregatorError
from netsum.programs import compiled_program
from netsum.star_service import star_network
from tests.controller.service_harness import ServiceThread, service_on, until
from tests.integration.test_shared_slots import DEADLINE_S, LANES, WORKERS, Trainer
from topologies.loopback import LoopbackTestbed


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceThread]:
    program = compiled_program(LANES)
    with LoopbackTestbed(1 + WORKERS, UDP_PORT, tmp_path) as bed:
        options = ServiceOptions(
            network=star_network(bed),
            program=program.json,
            p4info=program.p4info,
            listen=(f"unix:{tmp_path}/api.sock",),
            registry=RegistryOptions(move_s=30.0, start_s=DEADLINE_S),
        )
        with service_on(options) as running:
            running.ready()
            yield running


def test_a_job_runs_on_a_host_and_returns_to_the_switch(service: ServiceThread, tmp_path: Path) -> None:
    folder = tmp_path / "agent"
    folder.mkdir()
    with (
        OperatorClient(service.address, timeout_s=DEADLINE_S) as operator,
        Agent(
            AgentPlan(service.address, "host", "127.0.9.8", f"unix:{folder}/p4.sock", folder, udp_port=0)
        ) as agent,
        ThreadPoolExecutor(16) as pool,
        ExitStack() as closing,
    ):
        closing.callback(agent.close)
        registered = threading.Event()
        serving = pool.submit(agent.serve, registered.set)
        assert registered.wait(DEADLINE_S)
        full = join(service.address, job="full", rank=0, world_size=1, slots=POOL_SLOTS)
        job = Trainer(service.address, "spills", pool)
        for membership in job.memberships:
            closing.callback(membership.close)
        closing.callback(operator.delete_job, "spills")
        view = operator.job("spills")
        assert (view.on_host, view.switch, view.slot_count) == (True, "host", 64)
        job.steps(20)
        assert operator.job("spills").counters["contributions"] > 0
        full.close()
        until(lambda: not operator.job("spills").on_host)
        job.steps(20)
        view = operator.job("spills")
        assert (view.switch, view.moves, view.restarts) == ("loopback", 1, 0)
        closing.pop_all()
        job.stop()
        assert job.restarts == []
        agent.close()
        serving.result(DEADLINE_S)


def test_an_agent_without_a_controller(tmp_path: Path) -> None:
    with (
        Agent(AgentPlan(f"unix:{tmp_path}/none.sock", "host", "127.0.9.8", "unix:x", tmp_path)) as agent,
        pytest.raises(AggregatorError, match="^no controller answers at unix:.*/none.sock"),
    ):
        agent.serve()


def test_an_agent_takes_contributions_at_an_address_of_the_network(
    service: ServiceThread, tmp_path: Path
) -> None:
    address = next(iter(own_addresses()), "")
    if not address:
        pytest.skip("this machine has no address but loopback")
    with (
        OperatorClient(service.address, timeout_s=DEADLINE_S) as operator,
        Agent(
            AgentPlan(service.address, "host", address, f"unix:{tmp_path}/p4.sock", tmp_path, udp_port=0)
        ) as agent,
        ThreadPoolExecutor(1) as pool,
    ):
        registered = threading.Event()
        serving = pool.submit(agent.serve, registered.set)
        assert registered.wait(DEADLINE_S)
        operator.create_job("full", 1, slots=POOL_SLOTS)
        operator.create_job("spills", 1, if_full="queue")
        until(lambda: operator.job("spills").on_host)
        assert operator.switch("host").ip == address
        agent.close()
        serving.result(DEADLINE_S)


@pytest.mark.parametrize(
    ("ip", "p4runtime", "reason"),
    [
        ("203.0.113.1", "unix:p4.sock", "Cannot assign requested address"),
        ("127.0.9.8", "0.0.0.0:0", "P4Runtime on 0.0.0.0:0 could be reached from other machines"),
    ],
)
def test_an_agent_whose_switch_cannot_start_does_not_register(
    service: ServiceThread, tmp_path: Path, ip: str, p4runtime: str, reason: str
) -> None:
    with (
        Agent(AgentPlan(service.address, "host", ip, p4runtime, tmp_path)) as agent,
        pytest.raises(AggregatorError, match=f"^the switch cannot be started on this host: .*{reason}"),
    ):
        agent.serve()


def test_an_agent_whose_p4runtime_port_is_taken_does_not_register(
    service: ServiceThread, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with (
            Agent(AgentPlan(service.address, "host", "127.0.9.8", address, tmp_path)) as agent,
            pytest.raises(AggregatorError, match=f"P4Runtime cannot listen on {address}: it is in use"),
        ):
            agent.serve()
