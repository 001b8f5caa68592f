"""A job whose slots are on a host: real workers, a real agent, and the same P4 program in its embedded switch."""

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
from host_agent.wire.constants import POOL_SLOTS, UDP_PORT
from netsum.aggregator import Agent, AggregatorError
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
        Agent(service.address, "host", "127.0.9.8", f"unix:{folder}/p4.sock", folder, udp_port=0) as agent,
        ThreadPoolExecutor(16) as pool,
        ExitStack() as closing,
    ):
        closing.callback(agent.close)
        registered = threading.Event()
        serving = pool.submit(agent.serve, registered.set)
        assert registered.wait(DEADLINE_S)
        full = join(service.address, job="full", rank=0, world_size=1, slots=POOL_SLOTS)
        job = Trainer(service.address, "spills", pool)
        for seat in job.seats:
            closing.callback(seat.close)
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
        Agent(f"unix:{tmp_path}/none.sock", "host", "127.0.9.8", "unix:x", tmp_path) as agent,
        pytest.raises(AggregatorError, match="^no controller answers at unix:.*/none.sock"),
    ):
        agent.serve()
