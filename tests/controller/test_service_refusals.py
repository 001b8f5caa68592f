"""What a service refuses whoever asks, and what is said when none answers."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest

from controller.errors import ServiceError
from controller.service.client import OperatorClient
from controller.service.jobs import RefusalError
from controller.service.requests import check_world, read_slot_request
from controller.service.trees import JobTrees
from host_agent.job_api import jobs_pb2
from host_agent.joining import JoinError, join
from tests.controller.service_harness import Bench, fake_leaf_spine, fake_network, until


def test_what_no_client_of_ours_says_is_refused() -> None:
    with pytest.raises(RefusalError, match="expected REFUSE, QUEUE or TAKE_LESS"):
        read_slot_request(jobs_pb2.Slots(), 9)


def test_workers_on_several_pipes_of_a_tofino_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = fake_network(2)
    site = network.switches["s1"]
    apart = dict(zip(site.stations, (12, 132), strict=True))
    switches = {"s1": dataclasses.replace(site, stations=apart)}
    bench = Bench(tmp_path, monkeypatch, dataclasses.replace(network, switches=switches))
    try:
        bench.switch.tofino = True
        bench.serve()
        for joining in [bench.joining("job", rank, 2) for rank in (0, 1)]:
            with pytest.raises(
                JoinError, match="pipe 0: ports 12; pipe 1: ports 132.: use ports of one pipe"
            ):
                joining.result()
        until(lambda: bench.operator.switch().free_slots == 1024)
    finally:
        bench.close()


@pytest.mark.parametrize(
    "details",
    [
        "Deadline Exceeded",
        "keepalive watchdog timeout",
        "Stream removed (ping timeout)",
        "ipv4:127.0.0.1:1: Socket closed",
    ],
)
def test_a_controller_that_is_cut_off_is_said_not_to_answer(tmp_path: Path, details: str) -> None:
    said = SimpleNamespace(code=lambda: grpc.StatusCode.DEADLINE_EXCEEDED, details=lambda: details)
    with OperatorClient(f"unix:{tmp_path}/none.sock") as operator:
        fault = str(operator._explained(said))
        assert fault.startswith(f"no controller answers at unix:{tmp_path}/none.sock (")
        said.details = lambda: "job train waited 5 s: 64 slots requested"
        assert str(operator._explained(said)) == said.details()


def test_no_controller_is_said_to_be_there(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/none.sock"
    with (
        OperatorClient(address) as operator,
        pytest.raises(ServiceError, match=f"no controller answers at {address}"),
    ):
        operator.jobs()
    with pytest.raises(JoinError, match=f"nothing answers at {address}"):
        join(address, job="job", rank=0, world_size=1)
    with pytest.raises(
        JoinError, match="expected an address such as 127.0.0.1:28276 or unix:PATH, not 'nowhere'"
    ):
        join("nowhere", job="job", rank=0, world_size=1)


def test_more_workers_than_places() -> None:
    network = fake_leaf_spine((32,) * 32)
    places = JobTrees(network, {}, 64, possible=True).most_workers(spread=True)
    with pytest.raises(RefusalError, match="^a job has 1 to 1024 workers here, 32 at each switch, not 2000$"):
        check_world(2000, places)
