"""Child processes: none outlives its parent, however that ends."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from topologies.children import Child, ending_in_order, stop_all, uninterrupted

SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]


def wait_for(condition: Callable[[], bool], timeout_s: float = 60.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def gone(pid: int) -> bool:
    """Whether a process has ended; a zombie that its new parent has not fetched counts."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_child_dies_with_its_parent(tmp_path: Path, how: signal.Signals) -> None:
    script = f"""
import sys, time
from pathlib import Path
from topologies.children import Child
child = Child("sleeper", {SLEEPER!r}, Path({str(tmp_path / "log")!r}))
print(child.pid, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert not gone(pid)
        parent.send_signal(how)
        assert wait_for(lambda: gone(pid))


def test_stopping_asks_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topologies.children.STOP_GRACE_S", 60.0)
    polite = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(print("bye")))
print("up")
time.sleep(60)
"""
    child = Child("polite", [sys.executable, "-uc", polite], tmp_path / "log")
    assert wait_for(lambda: child.last_words() == "up")
    child.stop()
    assert child.last_words() == "bye"
    assert child.how_it_ended() == "polite ended with status 0 (bye)"


def test_stopping_insists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topologies.children.STOP_GRACE_S", 0.2)
    deaf = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up")
time.sleep(60)
"""
    children = [Child(f"deaf{n}", [sys.executable, "-uc", deaf], tmp_path / f"log{n}") for n in range(2)]
    assert wait_for(lambda: all(child.last_words() == "up" for child in children))
    stop_all(children)
    assert children[0].how_it_ended() == "deaf0 was killed by SIGKILL"
    assert children[1].how_it_ended() == "deaf1 was killed by SIGKILL"


def test_a_command_that_does_not_exist_says_so(tmp_path: Path) -> None:
    child = Child("nothing", ["/no/such/program"], tmp_path / "log")
    assert wait_for(lambda: not child.running)
    assert child.how_it_ended() == (
        "nothing ended with status 1 (cannot run /no/such/program: No such file or directory)"
    )


def test_pipes(tmp_path: Path) -> None:
    child = Child("echo", ["cat"], tmp_path / "log", pipes=True)
    child.stdin.write(b"hello\n")
    child.stdin.flush()
    assert child.stdout.readline() == b"hello\n"
    child.kill()
    assert not child.running


def test_ctrl_c_waits_for_the_end_of_an_uninterrupted_block() -> None:
    done = []

    def clean_up() -> None:
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
            done.append(True)

    with pytest.raises(KeyboardInterrupt):
        clean_up()
    assert done


def test_sigterm_unwinds_the_stack() -> None:
    def run() -> None:
        with ending_in_order():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(1)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as caught:
        run()
    assert caught.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_signal_during_the_start_of_a_child_leaves_no_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []
    fork_exec = subprocess._fork_exec  # type: ignore[attr-defined]  # Private, and the only moment that shows the defect.

    def interrupted(*arguments: object) -> int:
        pid: int = fork_exec(*arguments)
        started.append(pid)
        signal.raise_signal(signal.SIGTERM)
        return pid

    monkeypatch.setattr(subprocess, "_fork_exec", interrupted)
    with pytest.raises(SystemExit), ending_in_order():
        Child("sleeper", SLEEPER, tmp_path / "log")
    assert len(started) == 1
    assert not Path(f"/proc/{started[0]}").exists()


def test_a_signal_that_is_ignored_does_not_interrupt() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with uninterrupted() as arrived:
            signal.raise_signal(signal.SIGHUP)
        assert arrived == []
    finally:
        signal.signal(signal.SIGHUP, before)
