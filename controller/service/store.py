"""Durable controller state, in an SQLite file: jobs, workers, the last epoch and mark of each switch, and the event log.

A change is on disk before it is on a switch, so no switch is ahead of the file, even if the controller is killed. Only one
process at a time uses the file.

Failures raise `JobStoreError` with the reason.
"""

import contextlib
import fcntl
import os
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from controller.errors import JobStoreError
from controller.service.records import JobRecord, WorkerRecord
from controller.service.rows import check_host, check_job, check_transition, job_row, read_job
from netsum_common.closing import Closing
from netsum_common.errors import NetsumError

SCHEMA_VERSION = 4

# How long a write waits for another process that has locked the file, in seconds; it blocks the event loop.
LOCK_S = 0.2

_SCHEMA = """
CREATE TABLE switch (name TEXT PRIMARY KEY, last_epoch INTEGER NOT NULL, mark INTEGER NOT NULL) STRICT;
CREATE TABLE job (
  name TEXT PRIMARY KEY, switch TEXT NOT NULL, world_size INTEGER NOT NULL, slots TEXT NOT NULL, if_full TEXT NOT NULL,
  queue_s REAL NOT NULL, join_token TEXT NOT NULL, idle_s REAL NOT NULL, operated INTEGER NOT NULL, created REAL NOT NULL,
  running INTEGER NOT NULL, restarts INTEGER NOT NULL, job_id INTEGER NOT NULL, slot_base INTEGER NOT NULL,
  slot_count INTEGER NOT NULL, epoch INTEGER NOT NULL, token INTEGER NOT NULL, lanes INTEGER NOT NULL,
  spread INTEGER NOT NULL, below TEXT NOT NULL, weight REAL NOT NULL, moves INTEGER NOT NULL,
  moved_from INTEGER NOT NULL, aggregator TEXT NOT NULL, home TEXT NOT NULL,
  quorum INTEGER NOT NULL
) STRICT;
CREATE TABLE worker (
  job TEXT NOT NULL REFERENCES job ON DELETE CASCADE, rank INTEGER NOT NULL, host TEXT NOT NULL, ip TEXT NOT NULL,
  mac TEXT NOT NULL, port INTEGER NOT NULL, udp_port INTEGER NOT NULL, switch_ip TEXT NOT NULL,
  switch_port INTEGER NOT NULL, lease TEXT NOT NULL, left TEXT NOT NULL, PRIMARY KEY (job, rank)
) STRICT;
"""

_LATER = """
CREATE TABLE IF NOT EXISTS event (
  number INTEGER PRIMARY KEY, at REAL NOT NULL, job TEXT NOT NULL, rank INTEGER NOT NULL, switch TEXT NOT NULL,
  before TEXT NOT NULL, event TEXT NOT NULL, after TEXT NOT NULL, reason TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS host (
  name TEXT PRIMARY KEY, ip TEXT NOT NULL, leaf INTEGER NOT NULL, p4runtime TEXT NOT NULL, device_id INTEGER NOT NULL,
  udp_port INTEGER NOT NULL, tls INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS in_kernel (name TEXT PRIMARY KEY REFERENCES host ON DELETE CASCADE, mac TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS adds_for (name TEXT PRIMARY KEY REFERENCES host ON DELETE CASCADE, workers TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS on_host (job TEXT PRIMARY KEY REFERENCES job ON DELETE CASCADE) STRICT;
CREATE TABLE IF NOT EXISTS option (
  job TEXT NOT NULL REFERENCES job ON DELETE CASCADE, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (job, name)
) STRICT;
INSERT OR IGNORE INTO option SELECT job, 'on_host', 'true' FROM on_host;
DELETE FROM on_host;
CREATE TABLE IF NOT EXISTS leaf (
  job TEXT NOT NULL REFERENCES job ON DELETE CASCADE, rank INTEGER NOT NULL, leaf TEXT NOT NULL, PRIMARY KEY (job, rank)
) STRICT
"""
"""Tables that files of earlier versions lack; an earlier netsum that reads a newer file ignores them. Before table `option`,
jobs on hosts were in table `on_host`."""


class JobStore(Closing):
    """The state file; a context manager that closes it.

    `path`: the file; a new one is readable only by its owner, as it holds tokens. ``:memory:``: no file. `connect`: opens the
    database. Raises JobStoreError if another process uses the file, or the file has another version or is not a database.
    """

    def __init__(
        self, path: Path | str, connect: Callable[..., sqlite3.Connection] = sqlite3.connect
    ) -> None:
        self._path = str(path)
        self._writing = False
        self._lock = -1 if self._path == ":memory:" else _locked(Path(path))
        try:
            self._database = connect(self._path, LOCK_S, isolation_level=None, check_same_thread=False)
            with self._explained():
                self._prepare()  # Refuses a file of another version before anything is changed.
                self._database.execute("PRAGMA journal_mode = WAL")
                self._database.execute("PRAGMA synchronous = FULL")
                self._database.execute("PRAGMA foreign_keys = ON")
                for statement in _LATER.split(";"):
                    self._database.execute(statement)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file, so that another controller can use it."""
        if hasattr(self, "_database"):
            self._database.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def switch(self, name: str) -> tuple[int, int]:
        """Return the last epoch used on a switch, and the mark of its program; 0 if there was none."""
        with self._explained():
            query = "SELECT last_epoch, mark FROM switch WHERE name = ?"
            found = self._database.execute(query, (name,)).fetchone()
        return (int(found[0]), int(found[1])) if found else (0, 0)

    def places(self) -> set[str]:
        """Return the names of all switches, and of the hosts of workers."""
        with self._explained():
            found = self._rows("SELECT name FROM switch UNION SELECT host FROM worker")
        return {row["name"] for row in found}

    def mark_switch(self, name: str, mark: int) -> None:
        """Save the mark that was written to a switch with its program."""
        with self.transaction():
            self._put_switch(name, mark=mark)

    def hosts(self) -> list[dict[str, Any]]:
        """Return the switches that run on hosts: the columns of the tables `host`, `in_kernel` and `adds_for`."""
        with self._explained():
            found = self._rows(
                "SELECT * FROM host NATURAL LEFT JOIN in_kernel NATURAL LEFT JOIN adds_for ORDER BY name"
            )
        hosts = [{**row, "mac": row["mac"] or "", "workers": row["workers"] or ""} for row in found]
        for row in hosts:
            with self.sensible(f"aggregator {row['name']}"):
                check_host(row)
        return hosts

    def save_host(self, row: dict[str, Any]) -> None:
        """Save a switch that runs on a host."""
        columns = {**row}
        mac = {"name": row["name"], "mac": columns.pop("mac", "")}
        workers = {"name": row["name"], "workers": columns.pop("workers", "")}
        with self.transaction():
            self._insert("host", columns, conflict=["name"])
            self._insert("in_kernel", mac, conflict=["name"])
            self._insert("adds_for", workers, conflict=["name"])

    def delete_host(self, name: str) -> None:
        """Delete a switch on a host."""
        with self.transaction():
            self._database.execute("DELETE FROM host WHERE name = ?", (name,))

    def save(self, job: JobRecord) -> None:
        """Save a job, and its epoch as the last one used on its switches."""
        row, options = job_row(job)
        with self.transaction():
            for switch in (job.switch, *job.below):
                self._put_switch(switch, epoch=job.epoch)
            self._insert("job", row, conflict=["name"])
            for table in ("worker", "leaf", "option"):
                self._database.execute(f"DELETE FROM {table} WHERE job = ?", (job.name,))
            for name, value in options.items():
                self._insert("option", {"job": job.name, "name": name, "value": value})
            for worker in job.workers.values():
                columns = {"job": job.name, **asdict(worker)}
                leaf = columns.pop("leaf")
                self._insert("worker", columns)
                self._insert("leaf", {"job": job.name, "rank": worker.rank, "leaf": leaf})

    def delete_job(self, name: str) -> None:
        """Delete a job."""
        with self.transaction():
            self._database.execute("DELETE FROM job WHERE name = ?", (name,))

    def transitions(self) -> list[tuple[Any, ...]]:
        """Return the transitions of the event log, the oldest first."""
        query = "SELECT at, job, rank, switch, before, event, after, reason FROM event ORDER BY number"
        with self._explained():
            found = self._database.execute(query).fetchall()
        with self.sensible("the event log"):
            for _, _, rank, *_ in found:
                check_transition(rank)
        return found

    def add_transitions(self, added: Iterable[tuple[Any, ...]], kept: int) -> None:
        """Append transitions to the event log, and delete the oldest beyond `kept`."""
        statement = "INSERT INTO event (at, job, rank, switch, before, event, after, reason) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        with self.transaction():
            self._database.executemany(statement, added)
            self._database.execute(
                "DELETE FROM event WHERE number <= (SELECT max(number) FROM event) - ?", (kept,)
            )

    def jobs(self) -> list[JobRecord]:
        """Return all jobs, the oldest first."""
        with self._explained():
            jobs = self._rows("SELECT * FROM job ORDER BY created, name")
            rows = self._rows("SELECT job, name, value FROM option")
            workers = self._rows("SELECT * FROM worker NATURAL LEFT JOIN leaf ORDER BY rank")
        options: defaultdict[str, dict[str, str]] = defaultdict(dict)
        for row in rows:
            options[row["job"]][row["name"]] = row["value"]
        found: dict[str, JobRecord] = {}
        for row in jobs:
            with self.sensible(f"job {row['name']}"):
                found[row["name"]] = read_job(row, options[row["name"]])
        for row in workers:
            with self.sensible(f"a worker of job {row['job']}"):
                row["leaf"] = row["leaf"] or ""
                if row["job"] not in found:
                    raise ValueError("there is no such job")
                job = found[row.pop("job")]
                job.workers[row["rank"]] = WorkerRecord(**row)
        for job in found.values():
            with self.sensible(f"job {job.name}"):
                check_job(job)
        return list(found.values())

    @contextlib.contextmanager
    def sensible(self, what: str) -> Iterator[None]:
        """Raise JobStoreError if a block that reads saved values finds values that no controller has written."""
        try:
            yield
        except (ValueError, TypeError, LookupError, AttributeError, NetsumError) as error:
            raise JobStoreError(
                f"{what} in {self._path} has a value that no controller writes ({error}): start with an earlier copy of the "
                "file, or with another one"
            ) from None

    def _prepare(self) -> None:
        version = self._database.execute("PRAGMA user_version").fetchone()[0]
        if version == SCHEMA_VERSION:
            return
        if version or self._database.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
            raise JobStoreError(
                f"{self._path} has version {version} of the controller's state, this netsum has {SCHEMA_VERSION}: "
                "use the netsum that wrote it, or another file"
            )
        with self.transaction():
            for statement in _SCHEMA.split(";"):
                self._database.execute(statement)
            self._database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _put_switch(self, name: str, epoch: int = 0, mark: int | None = None) -> None:
        held_epoch, held_mark = self.switch(name)
        row = {
            "name": name,
            "last_epoch": max(epoch, held_epoch),
            "mark": held_mark if mark is None else mark,
        }
        self._insert("switch", row, conflict=["name"])

    def _insert(self, table: str, row: dict[str, Any], conflict: list[str] | None = None) -> None:
        names = ", ".join(row)
        statement = f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(row))})"
        if conflict:
            changes = ", ".join(f"{name} = excluded.{name}" for name in row if name not in conflict)
            statement += f" ON CONFLICT ({', '.join(conflict)}) DO UPDATE SET {changes}"
        self._database.execute(statement, tuple(row.values()))

    def _rows(self, query: str) -> list[dict[str, Any]]:
        cursor = self._database.execute(query)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Write the changes of a block in one transaction; a nested block joins the transaction of the outer one."""
        if self._writing:
            yield
            return
        self._writing = True
        try:
            with self._explained():
                self._roll_back()
                self._database.execute("BEGIN IMMEDIATE")
                yield
                self._database.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):  # If this fails, the next transaction rolls back first.
                self._roll_back()
            raise
        finally:
            self._writing = False

    def _roll_back(self) -> None:
        """Roll back an open transaction, if any; on a full disk, SQLite rolls back by itself."""
        if self._database.in_transaction:
            self._database.execute("ROLLBACK")

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise JobStoreError(f"the controller's state in {self._path} cannot be used: {error}") from error


def _locked(path: Path) -> int:
    """Lock the file beside a state file; return its descriptor, which holds the lock until it is closed."""
    if path.is_dir():
        raise JobStoreError(f"expected a file for the controller's state, but {path} is a folder")
    try:
        path.touch(mode=0o600)
        lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise JobStoreError(f"cannot keep the controller's state in {path}: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(lock, 32, 0).decode(errors="replace").strip()
        os.close(lock)
        raise JobStoreError(
            f"another controller (process {owner}) uses {path}: stop that one, or give this one another state file"
        ) from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock
