"""The controller on real switches: packets meet the entries that it writes."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest

from controller.entries import COPY_REWRITE, WORKER_ADMISSION, Entry
from controller.errors import (
    JobRefusedError,
    NotPrimaryError,
    SwitchRefusedError,
    SwitchUnreachableError,
    UnknownJobError,
    WrongProgramError,
)
from controller.p4runtime_writer import P4RuntimeWriter
from controller.program import CompiledFiles
from controller.session import Update
from controller.table_writer import Change
from netsum.programs import compiled_program
from tests.controller.scripted_workers import (
    ANSWER_TIMEOUT_S,
    LANES,
    admit,
    connect,
    open_socket,
    scripted_workers,
)
from tests.controller.service_harness import until
from tests.controller.star import program_switch
from tests.controller.switch_controller import SwitchController
from topologies.addresses import mac_int
from topologies.hosts import SwitchTestbed


def test_a_job_adds(testbed: SwitchTestbed, controller: SwitchController) -> None:
    with scripted_workers(testbed, 3) as workers:
        job = admit(controller, testbed, "job", workers)
        for chunk in range(20):
            for worker, admission in zip(workers, job.admissions, strict=True):
                worker.contribute(admission, chunk, 10**admission.worker_id)
            for worker_id, worker in enumerate(workers):
                answer = worker.receive()
                assert answer is not None
                header, values = answer
                assert (header.chunk, header.worker_id, header.num_workers, values) == (
                    chunk,
                    worker_id,
                    3,
                    {111},
                )
        counted = controller.counters(job)
        assert counted.pop("contributions") == 60
        assert counted.pop("results") == 20
        assert not any(counted.values())
        controller.end_job(job)


def test_two_jobs_share_a_switch_and_nothing_else(
    testbed: SwitchTestbed, controller: SwitchController
) -> None:
    with scripted_workers(testbed, 2) as first_workers, scripted_workers(testbed, 4) as second_workers:
        first = admit(controller, testbed, "first", first_workers)
        second = admit(controller, testbed, "second", second_workers, slots=8)
        assert not first.slots.overlaps(second.slots)
        # The first job's chunk stays open while the second's go through the same slot numbers.
        first_workers[0].contribute(first.admissions[0], 0, 1)
        for chunk in range(16):
            for worker, admission in zip(second_workers, second.admissions, strict=True):
                worker.contribute(admission, chunk, 100)
            for worker in second_workers:
                answer = worker.receive()
                assert answer is not None
                assert answer[1] == {400}
        first_workers[1].contribute(first.admissions[1], 0, 2)
        for worker in first_workers:
            answer = worker.receive()
            assert answer is not None
            assert answer[1] == {3}
        assert controller.counters(first)["contributions"] == 2
        assert controller.counters(second)["contributions"] == 64

        # The end of one frees its slots and leaves the other alone.
        free = controller.ledger.free_slots
        controller.end_job(second)
        assert controller.ledger.free_slots == free + 8
        second_workers[0].contribute(second.admissions[0], 16, 1)
        assert second_workers[0].hears_nothing()
        for worker, admission in zip(first_workers, first.admissions, strict=True):
            worker.contribute(admission, 1, 7)
        answer = first_workers[0].receive()
        assert answer is not None
        assert answer[1] == {14}
        controller.end_job(first)


def test_after_a_restart_old_packets_do_nothing(testbed: SwitchTestbed, controller: SwitchController) -> None:
    with scripted_workers(testbed, 2) as (first, second):
        old = admit(controller, testbed, "job", [first, second])
        for chunk in range(3):
            for worker, admission in zip((first, second), old.admissions, strict=True):
                worker.contribute(admission, chunk, 5)
        first.contribute(old.admissions[0], 3, 1000)  # A slot left half full.
        for worker in (first, second):
            for _ in range(3):
                assert worker.receive() is not None
        until(lambda: controller.counters(old)["contributions"] == 7)

        new = controller.restart_job(old)
        assert new.epoch > old.epoch
        assert new.token != old.token
        assert new.slots == old.slots
        # Late packets of the old life, then the old life's packets with the new token's guess wrong.
        for chunk in range(8):
            second.contribute(old.admissions[1], chunk, 1000)
            second.contribute(new.admissions[1], chunk, 1000, token=new.token ^ 1)
        until(lambda: controller.counters(new)["not_admitted"] == 16)
        assert second.hears_nothing()
        assert controller.admitted(new) == {0: 0, 1: 0}

        # The new life begins again at chunk 0, older than the slots' chunks, and gets clean sums.
        for chunk in range(8):
            first.contribute(new.admissions[0], chunk, 1)
            second.contribute(new.admissions[1], chunk, 2)
            for worker in (first, second):
                answer = worker.receive()
                assert answer is not None
                assert (answer[0].chunk, answer[1]) == (chunk, {3})
        assert controller.admitted(new) == {0: 8, 1: 8}
        controller.end_job(new)


def test_a_job_that_the_switch_takes_half_of_leaves_nothing(
    testbed: SwitchTestbed, controller: SwitchController, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = P4RuntimeWriter.write

    def refuse(writer: P4RuntimeWriter, change: Change, changed: Sequence[Entry], what: str) -> None:
        if change is not Change.INSERT or changed[0].table != WORKER_ADMISSION:
            write(writer, change, changed, what)
            return
        write(writer, change, changed[:1], what)
        raise SwitchRefusedError("the second entry is one too many")

    free = controller.ledger.free_slots
    with scripted_workers(testbed, 2) as workers:
        monkeypatch.setattr(P4RuntimeWriter, "write", refuse)
        with pytest.raises(SwitchRefusedError, match="one too many"):
            admit(controller, testbed, "job", workers)
        monkeypatch.undo()
    assert controller.ledger.free_slots == free
    assert not controller._writer.read(WORKER_ADMISSION)
    assert not controller._writer.read(COPY_REWRITE)


def test_a_job_on_the_slots_of_an_ended_one_is_clean(
    testbed: SwitchTestbed, controller: SwitchController
) -> None:
    with scripted_workers(testbed, 2) as workers:
        old = admit(controller, testbed, "old", workers)
        for chunk in range(7):
            for worker, admission in zip(workers, old.admissions, strict=True):
                worker.contribute(admission, chunk, 5)
                if admission.worker_id == 1:
                    assert worker.receive() is not None
        controller.end_job(old)
    with scripted_workers(testbed, 2) as workers:
        new = admit(controller, testbed, "new", workers)
        assert (new.slots, new.job_id) == (old.slots, old.job_id)
        assert controller.counters(new)["contributions"] == 0
        for worker, admission in zip(workers, new.admissions, strict=True):
            worker.contribute(admission, 0, 1)
        answer = workers[0].receive()
        assert answer is not None
        assert answer[1] == {2}
        controller.end_job(new)


@pytest.mark.parametrize("change", [{"token": 1}, {"worker_id": 1}, {"job_id": 200}])
def test_packets_of_no_worker_are_counted_and_dropped(
    testbed: SwitchTestbed, controller: SwitchController, change: dict[str, int]
) -> None:
    with scripted_workers(testbed, 1) as (worker,):
        job = admit(controller, testbed, "job", [worker])
        worker.contribute(job.admissions[0], 0, 1, **change)
        assert worker.hears_nothing()
        worker.contribute(job.admissions[0], 0, 1)
        answer = worker.receive()
        assert answer is not None
        assert answer[1] == {1}
        assert controller.counters(job)["contributions"] == 1
        controller.end_job(job)


def test_a_job_that_does_not_fit_is_refused_and_holds_nothing(
    testbed: SwitchTestbed, controller: SwitchController
) -> None:
    with scripted_workers(testbed, 1) as workers:
        large = admit(controller, testbed, "large", workers, slots=2048)
        with (
            scripted_workers(testbed, 1) as others,
            pytest.raises(JobRefusedError, match="2048 of the switch's 4096 are free"),
        ):
            admit(controller, testbed, "larger", others, slots=4096)
        assert controller.ledger.jobs == (large,)
        controller.end_job(large)
        assert controller.ledger.free_slots == 4096
        with pytest.raises(UnknownJobError):
            controller.counters(large)


def test_a_switch_that_died_is_programmed_again_and_its_job_restarted(
    testbed: SwitchTestbed, controller: SwitchController
) -> None:
    with scripted_workers(testbed, 2) as workers:
        old = admit(controller, testbed, "job", workers)
        for worker, admission in zip(workers, old.admissions, strict=True):
            worker.contribute(admission, 0, 5)
        assert workers[0].receive() is not None
        testbed.switch.kill()
        with pytest.raises(SwitchUnreachableError, match="was lost"):
            controller.counters(old)
        testbed.restart_switch()
        # gRPC connects again by itself; the session is none the less over, and the new switch must not be asked.
        grpc.channel_ready_future(controller._writer.session.channel).result(timeout=ANSWER_TIMEOUT_S)
        with pytest.raises(SwitchUnreachableError, match="was lost"):
            controller.restart_job(old)
        controller.reconnect()
        with pytest.raises(JobRefusedError, match="call set_pipeline first"):
            controller.restart_job(old)
        program_switch(controller, testbed)
        new = controller.restart_job(old)
        assert new.epoch > old.epoch
        for worker in workers:
            while not worker.hears_nothing():  # Packets from before the end.
                pass
        for worker, admission in zip(workers, new.admissions, strict=True):
            worker.contribute(admission, 0, 7)
        for worker in workers:
            answer = worker.receive()
            assert answer is not None
            assert answer[1] == {14}
        controller.end_job(new)


def test_a_second_controller_is_not_primary(testbed: SwitchTestbed, controller: SwitchController) -> None:
    with pytest.raises(NotPrimaryError, match=r"another controller is primary at .*use a higher election id"):
        connect(testbed, election_id=0)
    with pytest.raises(NotPrimaryError, match="another controller has this election id"):
        connect(testbed)


def test_a_controller_that_was_displaced_says_so(
    testbed: SwitchTestbed, controller: SwitchController
) -> None:
    with connect(testbed, election_id=2) as successor, scripted_workers(testbed, 1) as workers:
        with pytest.raises(NotPrimaryError, match="another controller became primary"):
            admit(controller, testbed, "job", workers)
        assert controller.ledger.free_slots == 4096
        with pytest.raises(JobRefusedError, match="call set_pipeline first"):
            admit(successor, testbed, "job", workers)


def test_a_switch_that_is_not_there(tmp_path: Path) -> None:
    program = compiled_program(LANES)
    with pytest.raises(SwitchUnreachableError, match=r"no P4Runtime server answers at unix:.* within 0.5 s"):
        SwitchController.connect(
            f"unix:{tmp_path}/none", program=program.json, p4info=program.p4info, timeout_s=0.5
        )


def test_a_program_that_is_none_is_refused_by_the_switch(testbed: SwitchTestbed, tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("{ nonsense")
    options: dict[str, Any] = {"p4info": compiled_program(LANES).p4info, "device_id": testbed.spec.device_id}
    with (
        SwitchController.connect(testbed.p4runtime_address, program=broken, **options) as controller,
        pytest.raises(SwitchRefusedError, match="refused setting the program"),
    ):
        controller.set_pipeline()
    testbed.restart_switch()  # BMv2 takes no program any more after one it could not read.
    with (
        SwitchController.connect(
            testbed.p4runtime_address, program=tmp_path / "none", **options
        ) as controller,
        pytest.raises(WrongProgramError, match=r"cannot read the compiled program .*none: No such file"),
    ):
        controller.set_pipeline()


def test_forwarding_is_replaced_whole(testbed: SwitchTestbed, controller: SwitchController) -> None:
    # Hosts reach each other through the switch, and no longer once their stations are gone.
    if not testbed.hosts[0].prefix:
        pytest.skip("on loopback hosts reach each other without the switch")
    with open_socket(testbed.hosts[0]) as one, open_socket(testbed.hosts[1]) as other:
        other.settimeout(ANSWER_TIMEOUT_S)
        one.sendto(b"hello", other.getsockname())
        assert other.recv(10) == b"hello"
        controller.tables.set_l2({})
        other.settimeout(0.2)
        one.sendto(b"again", other.getsockname())
        with pytest.raises(TimeoutError):
            other.recv(10)


def test_endpoints_may_be_moved_between_jobs(testbed: SwitchTestbed, controller: SwitchController) -> None:
    with scripted_workers(testbed, 2) as workers:
        job = admit(controller, testbed, "job", workers)
        controller.end_job(job)
        swapped = [
            dataclasses.replace(worker, worker_id=1 - (worker.worker_id or 0)) for worker in job.workers
        ]
        again = controller.create_job("job", swapped, 4)
        for worker, admission in zip(reversed(workers), again.admissions, strict=True):
            worker.contribute(admission, 0, 1 + admission.worker_id)
        for worker in workers:
            answer = worker.receive()
            assert answer is not None
            assert answer[1] == {3}
        controller.end_job(again)


def test_a_batch_refused_in_part_is_refused_with_the_reason(
    testbed: SwitchTestbed, controller: SwitchController
) -> None:
    # By the controller's own session: nothing the controller offers writes an entry that is there.
    new = Entry("l2_forward", (("dst", 0x0200_0000_7701),), "forward", (("port", 1),))
    held = Entry("l2_forward", (("dst", mac_int(testbed.hosts[0].mac)),), "forward", (("port", 1),))
    program = compiled_program(LANES)
    names = CompiledFiles(program.json, program.p4info).names
    messages = [names.entry_message(each) for each in (new, held)]
    with pytest.raises(SwitchRefusedError, match="refused the test's entries: (ALREADY_EXISTS|UNKNOWN)"):
        controller._writer.session.apply(Update.INSERT, messages, "the test's entries")
