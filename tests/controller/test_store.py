"""The controller's store, with a ledger, under any sequence of jobs."""

import asyncio
import contextlib
import itertools
import re
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from controller.errors import ConfigError, JobRefusedError, JobStoreError
from controller.jobs import Job, Reservation
from controller.ledger import JobLedger
from controller.program import CompiledFiles
from controller.service.events import EVENTS_KEPT, EventLog, Transition
from controller.service.jobs import Counted
from controller.service.network import ControlledNetwork, SwitchSite
from controller.service.records import JobRecord, WorkerRecord
from controller.service.recovery import restore_jobs
from controller.service.registry import JobRegistry, RegistryOptions
from controller.service.scheduler import Scheduler
from controller.service.serve import _check_names
from controller.service.sessions import Sessions
from controller.service.store import SCHEMA_VERSION, JobStore
from controller.service.views import event_view, job_view
from controller.service.workers import JobMembers
from host_agent.job_api.job_request import JobRequest
from host_agent.job_api.slot_request import BandwidthDelay, Share
from netsum_common.targets import Capabilities
from tests.controller.harness_switches import PROGRAM
from tests.controller.service_harness import fake_network

CAPACITY = 64
FILES = CompiledFiles(PROGRAM.json, PROGRAM.p4info)


def record(name: str, **changes: object) -> JobRecord:
    asked: dict[str, object] = {
        "world_size": 2, "slots": 8, "if_full": "queue", "queue_s": 1.5, "join_token": "secret", "idle_s": 60.0,
    }  # fmt: skip
    asked |= {each.name: changes.pop(each.name) for each in fields(JobRequest) if each.name in changes}
    values: dict[str, object] = {"switch": "s1", "operated": True, "created": 1000.25}
    return JobRecord(JobRequest(name, **asked), **{**values, **changes})  # type: ignore[arg-type]


def worker(rank: int, number: int = 0) -> WorkerRecord:
    return WorkerRecord(rank, f"h{rank}", f"10.0.{number}.{rank + 1}", f"02:00:00:00:{number:02x}:{rank:02x}", rank + 1, 9000,
                        "10.0.0.254", 28275, f"lease{rank}")  # fmt: skip


def held(kept: JobRecord) -> Job | Reservation:
    """The contents of its switch by a record."""
    slots = kept.slots_on["s1"]
    if not kept.epoch:
        return Reservation(kept.name, kept.job_id, slots)
    endpoints = tuple(kept.workers[rank].endpoint for rank in sorted(kept.workers))
    return Job(
        kept.request, kept.job_id, kept.epoch, kept.token, slots, Capabilities(lanes=kept.lanes), endpoints
    )


@pytest.mark.parametrize("slots", [8, Share(0.25), BandwidthDelay(1e9, 1e-4)])
def test_what_is_kept_comes_back_as_it_was(tmp_path: Path, slots: object) -> None:
    path = tmp_path / "state"
    first = record("first", slots=slots, running=True, restarts=3, job_id=7, slot_base=16, slot_count=8,
                   epoch=0xFFFF_FFFF, token=0xFFFF_FFFE, lanes=256, spread=True, below={"s2": 32},
                   workers={0: worker(0), 1: worker(1)})  # fmt: skip
    first.workers[1].left = "it left"
    with JobStore(path) as store:
        store.mark_switch("s1", (1 << 63) - 1)
        store.save(first)
        store.save(record("second", created=999.0))
        first.restarts = 4
        store.save(first)
    with JobStore(path) as store:
        assert store.jobs() == [record("second", created=999.0), first]
        assert store.switch("s1") == (0xFFFF_FFFF, (1 << 63) - 1)
        store.delete_job("first")
        assert [job.name for job in store.jobs()] == ["second"]
        # Epochs outlive their jobs.
        assert store.switch("s1")[0] == 0xFFFF_FFFF
        assert store.switch("s2") == (0xFFFF_FFFF, 0)
        assert store.switch("s4") == (0, 0)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_of_earlier_controllers_has_jobs_on_hosts_in_a_table_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "state"
    with JobStore(path) as store:
        store.save(record("host"))
        store.save(record("switch"))
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("DROP TABLE option")
        database.execute("INSERT INTO on_host VALUES ('host')")
    for _ in range(2):
        with JobStore(path) as store:
            assert {job.name: job.request.on_host for job in store.jobs()} == {"host": True, "switch": False}


def test_options_without_a_column_are_kept_and_those_of_a_later_netsum_left_out(tmp_path: Path) -> None:
    path, made = tmp_path / "state", record("job", on_host=True)
    with JobStore(path) as store:
        store.save(made)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        assert database.execute("SELECT * FROM option").fetchall() == [("job", "on_host", "true")]
        database.execute("INSERT INTO option VALUES ('job', 'later', '1')")
    with JobStore(path) as store:
        assert store.jobs() == [made]
        store.save(record("job"))
        assert store.jobs() == [record("job")]


def test_names_of_switches_and_hosts_follow_the_rule_unless_the_file_has_them(tmp_path: Path) -> None:
    switch = SwitchSite("rack 1", "127.0.0.1:9559", 1, "10.0.0.254", "02:00:00:00:00:fe", {})
    network = ControlledNetwork({"rack 1": switch}, {})
    with JobStore(tmp_path / "state") as store:
        with pytest.raises(ConfigError, match="switch or host: expected a name of 1 to 100 .* not 'rack 1'"):
            _check_names(network, store)
        store.mark_switch("rack 1", 7)
        _check_names(network, store)


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with (
        JobStore(tmp_path / "state"),
        pytest.raises(JobStoreError, match=r"another controller \(process \d+\) uses"),
    ):
        JobStore(tmp_path / "state")
    with JobStore(tmp_path / "state"):
        pass


def test_state_of_another_version_or_of_something_else_is_refused(tmp_path: Path) -> None:
    for name, statement in (
        ("later", "PRAGMA user_version = 99"),
        ("other", "CREATE TABLE music (song TEXT)"),
    ):
        with sqlite3.connect(tmp_path / name) as database:
            database.execute(statement)
        with pytest.raises(JobStoreError, match=f"version (99|0) .* this netsum has {SCHEMA_VERSION}"):
            JobStore(tmp_path / name)
    (tmp_path / "text").write_text("not a database, " * 100)
    with pytest.raises(JobStoreError, match="cannot be used: file is not a database"):
        JobStore(tmp_path / "text")
    with pytest.raises(JobStoreError, match="cannot keep the controller's state"):
        JobStore(tmp_path / "nowhere" / "state")


SENSELESS: dict[type, list[Any]] = {
    int: [-1, 0, 3, (1 << 32) + 5, -(1 << 62)],
    float: [-1.0, float("inf")],
    str: [
        "",
        "x",
        "{",
        "[1]",
        "null",
        '{"part": "x"}',
        '{"s2": "x"}',
        '{"s2": -5}',
        "999.1.1.1",
        "unix:",
        "\0",
    ],
}


def test_values_that_no_controller_writes_end_the_start_with_one_sentence() -> None:
    """With any value in one column, a controller starts and shows its jobs, or names the value in an error."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        said = dict(said_of_each_senseless_value(Path(folder) / "state"))
    pattern = r"\S.* in \S+/state has a value that no controller writes \(.+\): start with an earlier copy of the file, .*"
    assert [each for each in said.values() if not re.fullmatch(pattern, each)] == []
    assert len(said) > 30


def said_of_each_senseless_value(path: Path) -> Iterator[tuple[tuple[str, str], str]]:
    """Start a controller on each value; iterate over ((table, column), error) of the values that it refuses."""
    running = record("job", running=True, job_id=1, slot_base=64, slot_count=8, epoch=5, token=6, lanes=64,
                     workers={rank: worker(rank, 2) for rank in range(2)})  # fmt: skip
    with JobStore(path) as store:
        store.mark_switch("s1", 5)
        store.save(running)
        store.save(
            record("share", slots=Share(0.25), job_id=2, slot_base=0, slot_count=8, workers={1: worker(1)})
        )
        store.save(record("host", on_host=True, switch=""))
        store.save_host({"name": "agg", "ip": "10.0.0.9", "leaf": False, "p4runtime": "unix:/p", "device_id": 1, "udp_port": 9,
                         "tls": False, "mac": "", "workers": ""})  # fmt: skip
        store.add_transitions([(1.0, "job", 0, "", "", "join", "attached", "")], 10)
    written = path.read_bytes()
    with contextlib.closing(sqlite3.connect(path)) as database:
        tables = [row[0] for row in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        cells = [
            (table, row["number"], column, row[column])
            for table in tables
            for row in rows_of(database, table)
            for column in row.keys() - {"number" if table != "event" else ""}
        ]
    for table, number, column, before in cells:
        for value in SENSELESS[type(before)]:
            path.write_bytes(written)
            with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
                try:
                    database.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = {number}", (value,))
                except sqlite3.IntegrityError:
                    continue
            try:
                asyncio.run(restored(path))
            except JobStoreError as error:
                yield (table, column), str(error)
            except BaseException as error:
                error.add_note(f"{table}.{column} = {value!r}")
                raise


def rows_of(database: sqlite3.Connection, table: str) -> list[dict[str, Any]]:
    """The rows of a table, each with its number."""
    cursor = database.execute(f"SELECT *, rowid AS number FROM {table}")
    return [dict(zip([column[0] for column in cursor.description], row, strict=True)) for row in cursor]


async def restored(path: Path) -> None:
    """Take up the jobs of a state file as a controller does, and look at them."""
    with JobStore(path) as store:
        registry = JobRegistry(fake_network(), store, FILES, RegistryOptions())
        scheduler = Scheduler(registry)
        Sessions(scheduler, 1)
        restore_jobs(scheduler, JobMembers(scheduler))
        for job in registry.jobs.values():
            job_view(job, Counted())
            list(map(event_view, registry.events.of_job(job.name)))
        await asyncio.sleep(0)
        scheduler.rebalance()
        scheduler.close()


@pytest.mark.parametrize("column", ["job_id", "lanes"])
def test_a_running_job_has_a_number_and_lanes(column: str, tmp_path: Path) -> None:
    path = tmp_path / "state"
    with JobStore(path) as store:
        store.mark_switch("s1", 5)
        store.save(
            record("job", running=True, job_id=1, slot_base=64, slot_count=8, epoch=5, token=6, lanes=64)
        )
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute(f"UPDATE job SET {column} = 0")
    with pytest.raises(JobStoreError, match=f"has a value that no controller writes .*{column}.* 0"):
        asyncio.run(restored(path))


def test_the_event_log_is_kept_to_its_size(tmp_path: Path) -> None:
    for _ in range(3):
        with JobStore(tmp_path / "state") as store:
            log = EventLog(store)
            for rank in range(EVENTS_KEPT // 2):
                store_only = (
                    float(rank),
                    "job",
                    rank,
                    "",
                    "attached",
                    "detach",
                    "detached",
                    "its stream broke",
                )
                log._unsaved.append(Transition(*store_only))
            log.save()
    with JobStore(tmp_path / "state") as store:
        kept = EventLog(store).of_job("job")
    assert [each.rank for each in kept] == [*range(EVENTS_KEPT // 2)] * 2


class LedgerAndStore(RuleBasedStateMachine):
    """Jobs come, restart and go; the controller is killed at any moment between a save and the next."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
        self.store = JobStore(Path(self.folder.name) / "state")
        self.ledger = JobLedger(Capabilities(slots=CAPACITY))
        self.records: dict[str, JobRecord] = {}
        self.epochs: list[int] = []
        self.count = 0

    @rule(slots=st.sampled_from([1, 2, 8, 16, 64]), started=st.booleans())
    def come(self, slots: int, started: bool) -> None:
        self.count += 1
        made = record(f"job {self.count}", slots=slots, created=float(self.count))
        free = self.ledger.largest_free
        try:
            made.hold({"s1": self.ledger.reserve(made.request, slots)})
        except JobRefusedError:
            assert free < slots
            return
        assert free >= slots
        self.records[made.name] = made
        if started:
            made.workers = {rank: worker(rank, self.count % 256) for rank in range(2)}
            self._start(made)
        self.store.save(made)

    @precondition(lambda self: any(one.running for one in self.records.values()))
    @rule(choice=st.randoms(use_true_random=False))
    def restart(self, choice: object) -> None:
        chosen = choice.choice([one for one in self.records.values() if one.running])  # type: ignore[attr-defined]
        present = held(chosen)
        assert isinstance(present, Job)
        chosen.hold({"s1": self._admitted(chosen, present.token ^ 1)})
        self.epochs.append(chosen.epoch)
        self.store.save(chosen)

    @precondition(lambda self: self.records)
    @rule(choice=st.randoms(use_true_random=False))
    def go(self, choice: object) -> None:
        chosen = choice.choice(list(self.records.values()))  # type: ignore[attr-defined]
        self.ledger.discard(chosen.name)
        self.store.delete_job(self.records.pop(chosen.name).name)

    @rule()
    def kill(self) -> None:
        path = Path(self.folder.name) / "state"
        self.store.close()
        self.store = JobStore(path)
        self.ledger = JobLedger(Capabilities(slots=CAPACITY), self.store.switch("s1")[0])
        found = {job.name: job for job in self.store.jobs()}
        assert found == self.records
        for job in found.values():
            self.ledger.restore(held(job))
        self.records = found

    @invariant()
    def nothing_is_held_twice(self) -> None:
        if not hasattr(self, "records"):
            return
        ranges = sorted((one.slot_base, one.slot_base + one.slot_count) for one in self.records.values())
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(ranges))
        ids = [one.job_id for one in self.records.values()]
        assert len(set(ids)) == len(ids)
        assert self.ledger.free_slots == CAPACITY - sum(one.slot_count for one in self.records.values())
        assert self.epochs == sorted(set(self.epochs))

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            self.folder.cleanup()

    def _admitted(self, made: JobRecord, token: int) -> Job:
        endpoints = [made.workers[rank].endpoint for rank in sorted(made.workers)]
        return self.ledger.admit(made.request, endpoints, token=token, unix_seconds=100)

    def _start(self, made: JobRecord) -> None:
        made.hold({"s1": self._admitted(made, 1)})
        made.running = True
        self.epochs.append(made.epoch)


LedgerAndStore.TestCase.settings = settings(max_examples=8, stateful_step_count=15)
TestLedgerAndStore = LedgerAndStore.TestCase
