"""Run ids: the leftovers of a crashed run are known by its owner being gone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import named_namespaces
from topologies.children import TestbedError
from topologies.leftovers import MARK, runs_in
from topologies.namespaces import run
from topologies.runs import delete_leftover_folders, new_run_id, owner_is_gone, socket_folder

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")


def id_of_a_process_that_ended() -> str:
    script = "from topologies.runs import new_run_id; print(new_run_id())"
    return subprocess.check_output([sys.executable, "-c", script], text=True).strip()


def test_ids_differ_and_their_owner_lives() -> None:
    ids = [new_run_id() for _ in range(3)]
    assert len(set(ids)) == 3
    assert not any(map(owner_is_gone, ids))


def test_a_process_is_of_a_run_by_its_mark_not_by_its_number() -> None:
    """Numbers are used again, and a process that nobody waited for still has its own."""
    run_id = new_run_id()
    asleep = [sys.executable, "-c", "import time; print(flush=True); time.sleep(1000)"]
    marked = subprocess.Popen(asleep, env={**os.environ, MARK: run_id}, stdout=subprocess.PIPE)
    try:
        assert marked.stdout is not None
        marked.stdout.readline()
        assert runs_in(run_id, marked.pid)
        assert not runs_in(new_run_id(), marked.pid)
        assert not runs_in(run_id, os.getpid())
    finally:
        marked.kill()
    os.waitid(os.P_PID, marked.pid, os.WEXITED | os.WNOWAIT)
    assert not runs_in(run_id, marked.pid)
    marked.communicate()
    assert not runs_in(run_id, marked.pid)


def test_an_owner_that_ended_is_gone() -> None:
    assert owner_is_gone(id_of_a_process_that_ended())


def test_a_process_id_that_was_taken_again_is_another_owner() -> None:
    pid, start, count = new_run_id().split("-")
    assert owner_is_gone(f"{pid}-{int(start) - 1}-{count}")


@pytest.mark.parametrize("name", ["", "1", "mine-1-2", "1-2-3-4"])
def test_a_name_that_is_no_run_id_has_no_owner_that_could_be_gone(name: str) -> None:
    assert not owner_is_gone(name)


def test_folders_of_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ours = socket_folder(new_run_id())
    left = socket_folder(id_of_a_process_that_ended())
    (left / "p4runtime").touch()
    foreign = tmp_path / "netsum-my-own-notes"
    foreign.mkdir()
    delete_leftover_folders()
    assert sorted(tmp_path.iterdir()) == sorted([ours, foreign])
    assert ours.stat().st_mode & 0o777 == 0o700


@pytest.mark.root
@ROOT
def test_leftover_namespaces_go_with_their_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    # The owner is gone in this process's eyes alone: another test that clears up would delete the run too soon.
    run_id = new_run_id()
    monkeypatch.setattr(named_namespaces, "owner_is_gone", lambda each: each == run_id)
    left = named_namespaces.namespace_name(run_id, "switch")
    ours = named_namespaces.namespace_name(new_run_id(), "switch")
    named_namespaces.add_namespace(left)
    named_namespaces.add_namespace(ours)
    try:
        with subprocess.Popen([*named_namespaces.inside(left), "sleep", "60"]) as sleeper:
            while not run("ip", "netns", "pids", left):
                assert sleeper.poll() is None
            assert left in named_namespaces.delete_leftovers()
            assert sleeper.wait(timeout=60) == -9
        assert left not in named_namespaces.list_namespaces()
        assert ours in named_namespaces.list_namespaces()
    finally:
        named_namespaces.delete_namespaces([left, ours])
    assert ours not in named_namespaces.list_namespaces()


@pytest.mark.root
@ROOT
def test_a_command_that_fails_says_what_it_said() -> None:
    with pytest.raises(TestbedError, match=r"`ip netns delete netsum-none` failed: .*netsum-none"):
        run("ip", "netns", "delete", "netsum-none")
