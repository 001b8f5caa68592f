"""Output of 0.1.0 against the present code, which refuses its packets and workers, and reads its store and experiments.

The samples in v0_1_0/ were recorded from the sources of commit 8372b7b, the last of 0.1.0.
"""

import json
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from host_agent.job_api import jobs_pb2
from sim.experiments.experiment import load_experiment
from tests.controller.service_harness import DEADLINE_S, Bench, until
from tests.dataplane.dataplane.embedded import EmbeddedTarget
from tests.dataplane.dataplane.frames import HEADERS_BYTES
from tests.dataplane.dataplane.jobs import SWITCH_IP, SWITCH_MAC, Job
from tests.dataplane.dataplane.target import Entry

SAMPLES = Path(__file__).with_name("v0_1_0")
OLD_API = descriptor_pb2.FileDescriptorProto.FromString((SAMPLES / "jobs.binpb").read_bytes())
RENAMED = {("SwitchView", "strangers"): "unadmitted"}
"""Fields with another name and the same number: their bytes are the same."""


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    one = Bench(tmp_path, monkeypatch)
    yield one
    one.close()


def old_class(name: str) -> Any:
    """A message's class as 0.1.0 had it."""
    pool = descriptor_pool.DescriptorPool()
    pool.Add(OLD_API)
    descriptor = pool.FindMessageTypeByName(f"netsum.v1.{name}")
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(pool).GetPrototype(descriptor)  # protobuf 3.20


def test_packets_of_0_1_0_are_counted_and_dropped() -> None:
    sample = json.loads((SAMPLES / "packets.json").read_text())
    target = EmbeddedTarget(64)
    try:
        own = Entry("switch_address", {"address": SWITCH_IP}, "own_address", {"mac": SWITCH_MAC})
        target.insert([own])
        job = Job(target, 7, sample["epoch"], sample["token"], workers=2, slot_base=0, slot_count=2)
        job.start()
        sent = [(step["port"], bytes.fromhex(step["frame"])) for step in sample["steps"]]
        # A header of version 1 by itself is shorter than one of this version, and does not say which job it is for.
        short = sum(len(frame) < HEADERS_BYTES for _, frame in sent)
        with job.counting(malformed=len(sent) - short), job.counting(job_id=0, malformed=short):
            job.expect(sent)
        assert short == 2
    finally:
        target.close()


def test_every_message_and_call_of_the_job_api_is_still_there() -> None:
    now = descriptor_pb2.FileDescriptorProto()
    jobs_pb2.DESCRIPTOR.CopyToProto(now)
    messages = {message.name: message for message in now.message_type}
    for message in OLD_API.message_type:
        fields = {field.number: field for field in messages[message.name].field}
        for field in message.field:
            kept = fields[field.number]
            name = RENAMED.get((message.name, field.name), field.name)
            assert (kept.name, kept.type, kept.label, kept.type_name) == (
                name,
                field.type,
                field.label,
                field.type_name if name == field.name else kept.type_name,
            )
    enums = {enum.name: {value.number: value.name for value in enum.value} for enum in now.enum_type}
    for enum in OLD_API.enum_type:
        assert {value.number: value.name for value in enum.value}.items() <= enums[enum.name].items()
    services = {service.name: list(service.method) for service in now.service}
    for service in OLD_API.service:
        assert [method for method in service.method if method not in services[service.name]] == []


def test_a_worker_of_0_1_0_is_told_both_versions(bench: Bench) -> None:
    bench.serve()
    way, kind, text = json.loads((SAMPLES / "worker.json").read_text())[0]
    assert (way, kind) == ("sent", "join")
    with grpc.insecure_channel(bench.address) as channel:
        call = channel.stream_stream(
            "/netsum.v1.Workers/Join", lambda sent: sent, old_class("ToWorker").FromString
        )(iter([bytes.fromhex(text)]), timeout=DEADLINE_S)
        with pytest.raises(
            grpc.RpcError, match="packets of version 1, the switches of this controller of version 2"
        ):
            list(call)
    assert bench.operator.jobs() == []


def test_a_store_of_0_1_0_is_taken_up(bench: Bench, tmp_path: Path) -> None:
    shutil.copy(SAMPLES / "controller.sqlite3", tmp_path / "state.sqlite3")
    bench.serve(recovery_s=DEADLINE_S)
    # The switch had lost its program; an epoch is used once.
    until(lambda: bench.operator.job("running").epoch > 4242)
    jobs = {view.name: view for view in bench.operator.jobs()}
    assert jobs.keys() == {"running", "created"}
    running = jobs["running"]
    assert (running.job_id, running.slot_base, running.slot_count, running.world_size) == (3, 16, 8, 2)
    assert [worker.host for worker in running.workers] == ["h1", "h2"]
    assert next(event.event for event in bench.operator.job_events("running")) == "restore"


def test_a_store_of_an_unknown_version_stays_as_it_is(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite3"
    shutil.copy(SAMPLES / "controller.sqlite3", path)
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 3")
    before = path.read_bytes()
    with pytest.raises(
        Exception, match="version 3 of the controller's state, this netsum has 4: use the netsum"
    ):
        bench.serve()
    assert path.read_bytes() == before


def test_an_experiment_of_0_1_0_is_read_and_its_old_key_named() -> None:
    with pytest.warns(
        FutureWarning, match=r"background\[0\]\.random is deprecated: write gaps = \"uniform\""
    ):
        old = load_experiment(str(SAMPLES / "incast.toml"))
    assert [point.settings for point in old.points] == [
        point.settings for point in load_experiment("incast").points
    ]
