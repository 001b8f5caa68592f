"""The operator's commands, against a controller service with an embedded switch on loopback."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from host_agent.job_api.jobs_pb2 import JobView, Report, WorkerView
from host_agent.joining import join
from netsum.allreduce.plan import Plan
from netsum.allreduce.session import loopback_controller
from netsum.allreduce.worker import JobLostError, RankOptions, take_part
from netsum.cli.app import app
from netsum.cli.watching import picture
from netsum.extras import install_command
from netsum.terminal import console

DEADLINE_S = 400.0

needs_shell = pytest.mark.skipif(
    find_spec("p4runtime_sh") is None, reason=f"needs p4runtime-shell: {install_command('p4runtime_sh')}"
)

JOB_KEYS = {
    *(
        "name",
        "state",
        "reason",
        "switch",
        "world_size",
        "job_id",
        "epoch",
        "slot_base",
        "slot_count",
        "lanes",
    ),
    *(
        "created",
        "restarts",
        "workers",
        "counters",
        "contributions_per_s",
        "results_per_s",
        "elements_per_s",
        "tree",
        "weight",
        "moves",
        "waited_s",
        "on_host",
        "quorum",
    ),
}
WORKER_KEYS = {
    *(
        "rank",
        "state",
        "host",
        "ip",
        "udp_port",
        "switch_port",
        "seen_s",
        "chunks_per_s",
        "retransmissions_per_s",
    ),
}
SWITCH_KEYS = {
    *("name", "state", "reason", "address", "device_id", "ip", "program", "lanes", "slots", "free_slots"),
    *("largest_free", "jobs", "ports", "unadmitted", "reconnects", "restarts", "reconciliation"),
}

Netsum = Callable[..., Result]


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with loopback_controller(2, 64, 0, tmp_path_factory.mktemp("controller")) as address:
        yield address


@pytest.fixture
def netsum(controller: str, monkeypatch: pytest.MonkeyPatch) -> Netsum:
    """Run a command that finds the controller by the environment; jobs it leaves are deleted before the next test."""
    monkeypatch.setenv("NETSUM_CONTROLLER", controller)

    def run(*words: str, script: str | None = None) -> Result:
        return CliRunner().invoke(app, words, input=script, prog_name="netsum")

    for job in document(run("job", "list", "--json")):
        run("job", "delete", job["name"])
    return run


def document(result: Result) -> Any:
    """A command's output in JSON."""
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refused(result: Result, status: int = 1) -> str:
    """The one sentence a command failed with."""
    assert result.exit_code == status, result.output
    assert result.stderr.startswith("netsum: ")
    assert len(result.stderr.splitlines()) == 1
    return result.stderr.removeprefix("netsum: ").strip()


def test_switches(netsum: Netsum) -> None:
    (switch,) = document(netsum("switch", "list", "--json"))
    assert switch.keys() >= SWITCH_KEYS
    assert (switch["name"], switch["state"], switch["lanes"]) == ("loopback", "ready", 64)
    assert document(netsum("switch", "show", "loopback", "--json"))["slots"] == 4096
    assert "4,096 of 4,096" in netsum("switch", "list").stdout
    assert "slots:" in netsum("switch", "show").stdout
    assert (
        refused(netsum("switch", "show", "nonesuch"))
        == "there is no switch nonesuch: the switches are loopback"
    )


def test_ports_of_a_switch(netsum: Netsum) -> None:
    ports = document(netsum("switch", "ports", "--json"))
    assert [(port["number"], port["peer"], port["counts"]) for port in ports] == [
        (0, "worker0", {}),
        (1, "worker1", {}),
    ]
    assert "worker1" in netsum("switch", "ports").stdout


def test_counters_of_a_switch(netsum: Netsum) -> None:
    document(netsum("job", "create", "one", "--world-size", "1", "--json"))
    counters = document(netsum("switch", "counters", "--json"))
    assert counters.keys() == {"switch", "jobs", "unadmitted"}
    assert counters["jobs"]["one"]["contributions"] == 0
    assert counters["unadmitted"].keys() >= {"contributions", "results", "stale", "malformed", "not_admitted"}
    assert "not admitted" in netsum("switch", "counters").stdout


def test_the_events_of_a_job(netsum: Netsum) -> None:
    document(netsum("job", "create", "past", "--world-size", "2", "--json"))
    document(netsum("job", "delete", "past", "--json"))
    first, *_, last = document(netsum("job", "events", "past", "--json"))
    assert first.keys() == {"at", "job", "switch", "before", "event", "after", "reason"}
    assert (first["event"], first["reason"]) == ("create", "an operator created it")
    assert (last["before"], last["after"], last["reason"]) == (
        "gathering",
        "ended",
        "an operator deleted the job",
    )
    shown = netsum("job", "events", "past").stdout
    assert "an operator deleted the job" in " ".join(shown.split())  # wrapped in a narrow terminal
    assert refused(netsum("job", "events", "nonesuch")) == "there is no job named nonesuch"


def test_a_job_from_creation_to_end(netsum: Netsum) -> None:
    made = document(netsum("job", "create", "train", "--world-size", "2", "--slots", "25%", "--json"))
    assert made.keys() == JOB_KEYS
    assert (made["state"], made["slot_count"], made["world_size"]) == ("gathering", 1024, 2)
    assert [worker["state"] for worker in made["workers"]] == ["absent", "absent"]
    assert made["workers"][0].keys() == WORKER_KEYS
    assert [job["name"] for job in document(netsum("job", "list", "--json"))] == ["train"]
    assert "0 of 2" in netsum("job", "list").stdout
    shown = netsum("job", "show", "train").stdout
    assert "1024, numbers 0 to 1023" in shown
    assert "absent" in shown
    assert netsum("job", "delete", "train").stdout == "the job train has ended\n"
    assert document(netsum("job", "list", "--json")) == []
    ended = next(
        job for job in document(netsum("job", "list", "--ended", "--json")) if job["name"] == "train"
    )
    assert (ended["state"], ended["reason"]) == ("ended", "an operator deleted the job")


def test_a_job_with_a_quorum(netsum: Netsum) -> None:
    made = document(netsum("job", "create", "train", "--world-size", "8", "--quorum", "7", "--json"))
    assert made["quorum"] == 7
    assert "7 of 8 workers" in netsum("job", "show", "train").stdout
    wrong = netsum("job", "create", "other", "--world-size", "2", "--quorum", "3")
    assert "a quorum is 1 to 2, the job's workers, not 3" in refused(wrong, 2)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["job", "show", "nonesuch"], "there is no job named nonesuch"),
        (["job", "restart", "nonesuch"], "there is no job named nonesuch"),
        (["job", "delete", "nonesuch"], "there is no job named nonesuch"),
        (["job", "watch", "nonesuch"], "there is no job named nonesuch"),
        (["job", "create", "big", "--world-size", "2", "--slots", "8192"], "8,192 slots requested"),
        (["job", "create", "lost", "--world-size", "2", "--switch", "s9"], "s9"),
        (["job", "list", "--testbed", "no-such-testbed"], "no testbed no-such-testbed is up"),
        (["job", "list", "--controller", "127.0.0.1:1"], "no controller answers at 127.0.0.1:1"),
        (
            ["switch", "list", "--controller", "unix:/nonesuch.sock"],
            "start one with `netsum controller serve`",
        ),
    ],
)
def test_impossible_requests_are_refused_with_the_reason(
    netsum: Netsum, words: list[str], sentence: str
) -> None:
    assert sentence in refused(netsum(*words))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["job", "create", "odd", "--world-size", "2", "--slots", "33"], "expected a power of two"),
        (["job", "create", "odd", "--world-size", "2", "--slots", "10gbit*"], "expected a delay"),
        (["job", "list", "--controller", "127.0.0.1:1", "--tls-ca", "/nonesuch"], "cannot read /nonesuch"),
        (
            ["job", "list", "--controller", "127.0.0.1:1", "--tls-ca", __file__],
            "expected a certificate in PEM form in",
        ),
        (["job", "list", "--controller", "127.0.0.1:1", "--tls-cert", "/nonesuch"], "belong together"),
        (
            ["job", "list", "--controller", "127.0.0.1:1", "--tls-cert", __file__, "--tls-key", __file__],
            "both in PEM form",
        ),
        (["job", "list", "--controller", "nowhere"], "expected an address such as"),
    ],
)
def test_wrong_arguments_exit_with_2(netsum: Netsum, words: list[str], sentence: str) -> None:
    assert sentence in refused(netsum(*words), 2)


@pytest.mark.parametrize("name", ["[/red]", "[bold]x[/bold]", ":boom:", "[link=file:///etc]y"])
def test_a_name_is_no_markup(netsum: Netsum, name: str) -> None:
    """A new job cannot have such a name; one of an older state file may."""
    assert f"not '{name}'" in refused(netsum("job", "create", name, "--world-size", "1"), 2)
    for words in (["job", "show", name], ["job", "watch", name, "--views", "1"], ["job", "delete", name]):
        assert refused(netsum(*words)) == f"there is no job named {name}"


def test_the_environment_names_a_testbed(netsum: Netsum, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETSUM_TESTBED", "no-such-testbed")
    assert document(netsum("job", "list", "--json")) == []  # NETSUM_CONTROLLER comes first.
    monkeypatch.delenv("NETSUM_CONTROLLER")
    assert "no testbed no-such-testbed is up" in refused(netsum("job", "list"))


def test_a_full_switch(netsum: Netsum) -> None:
    document(netsum("job", "create", "first", "--world-size", "1", "--slots", "4096", "--json"))
    assert "free" in refused(netsum("job", "create", "second", "--world-size", "1", "--slots", "64"))
    queued = document(
        netsum(
            "job", "create", "second", "--world-size", "1", "--slots", "64", "--if-full", "queue", "--json"
        )
    )
    assert queued["slot_count"] == 0
    assert queued["reason"]


def test_watching_a_job(netsum: Netsum) -> None:
    document(netsum("job", "create", "train", "--world-size", "2", "--json"))
    lines = netsum("job", "watch", "train", "--views", "2", "--interval", "0.1", "--json").stdout.splitlines()
    assert [json.loads(line)["state"] for line in lines] == ["gathering", "gathering"]
    picture = netsum("job", "watch", "train", "--views", "1").stdout
    assert picture.startswith("train  gathering")
    assert "retrans-" in picture


@pytest.mark.timeout(400)  # The command may have to compile the worker first.
def test_a_job_that_has_not_run_shows_no_counters_and_a_long_name_is_folded(
    netsum: Netsum, controller: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert "counted" not in netsum("job", "create", "short", "--world-size", "1").stdout
    netsum("job", "create", "long" * 40, "--world-size", "1")
    lines = netsum("job", "list").stdout.splitlines()
    assert [line.split()[:4] for line in lines if line.startswith("short")] == [
        ["short", "gathering", "0", "of"]
    ]
    for name in ("short", "long" * 40):
        netsum("job", "delete", name)


def test_a_job_shows_what_zeros_saved(netsum: Netsum, controller: str) -> None:
    array = np.zeros(100 * 64, np.float32)
    done = threading.Event()

    def reported(worker: dict[str, Any]) -> bool:
        return bool(worker.get("report", {}).get("collectives") == 2)

    def workers_of(name: str) -> list[dict[str, Any]]:
        shown = netsum("job", "show", name, "--json")
        if shown.exit_code and "there is no job named" in shown.output:
            return []  # The first worker that joins makes it.
        workers: list[dict[str, Any]] = document(shown)["workers"]
        return workers

    def contribute(rank: int) -> None:
        mine = array.copy()
        mine[64 * rank] = 1  # One block of a hundred at each worker, two at both.
        with (
            join(controller, job="thin", rank=rank, world_size=2) as membership,
            membership.communicator() as communicator,
        ):
            communicator.allreduce(mine, sparse="always")
            communicator.barrier()
            assert done.wait(DEADLINE_S)

    with ThreadPoolExecutor(2) as pool:
        workers = [pool.submit(contribute, rank) for rank in range(2)]
        try:
            while sum(map(reported, workers_of("thin"))) < 2:
                assert not any(worker.done() for worker in workers), [
                    worker.exception() for worker in workers
                ]
            shown, watched = (
                netsum("job", "show", "thin").stdout,
                netsum("job", "watch", "thin", "--views", "1").stdout,
            )
        finally:
            done.set()
    # Each way 97 of 100 packets less: two for blocks, one for the bitmap; and a header in place of the other's block.
    saved = 2 * (2 * 97 * (24 + 256) + 256)
    line = f"sparse: 1 of 2 collectives; not zero: 1.00% of a worker's blocks, 2.00% of all workers'; {saved:,} bytes saved"
    assert line in " ".join(shown.split())  # Long lines are wrapped at the width of the terminal.
    assert line in " ".join(watched.split())


def test_ctrl_c_ends_a_watch_and_leaves_the_job(netsum: Netsum) -> None:
    document(netsum("job", "create", "train", "--world-size", "2", "--json"))
    command = [sys.executable, "-c", "from netsum.cli import main; main()", "job", "watch", "train", "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    ) as watch:
        assert watch.stdout is not None
        assert json.loads(watch.stdout.readline())["name"] == "train"
        watch.send_signal(signal.SIGINT)
        _, said = watch.communicate(timeout=DEADLINE_S)
    assert (watch.returncode, "Traceback" in said) == (130, False)
    assert document(netsum("job", "show", "train", "--json"))["state"] == "gathering"


def test_allreduce_through_a_controller(netsum: Netsum) -> None:
    options = [
        "--workers",
        "2",
        "--sizes",
        "4,40KiB",
        "--dtypes",
        "float32,int64",
        "--repeats",
        "2",
        "--job",
        "sums",
    ]
    outcome = document(netsum("allreduce", *options, "--slots", "2%", "--json"))
    assert outcome.keys() == {"correct", "job", "workers", "hosts", "slots", "lanes", "results", "switch"}
    assert (outcome["correct"], outcome["job"], outcome["workers"]) == (True, "sums", 2)
    assert (sorted(outcome["hosts"]), outcome["slots"], outcome["lanes"]) == (["worker0", "worker1"], 64, 64)
    assert [(row["dtype"], row["bytes"]) for row in outcome["results"]] == [
        ("float32", 4),
        ("float32", 40 << 10),
        ("int64", 8),
        ("int64", 40 << 10),
    ]
    for row in outcome["results"]:
        assert row["correct"]
        assert row["same_bits"]
        assert len(set(row["checksums"])) == 2
        assert 0 < row["seconds"]["least"] <= row["seconds"]["median"] <= row["seconds"]["most"]
    assert outcome["switch"]["results"] > 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--sizes", "4kb"], "a size is a whole number of bytes"),
        (["--dtypes", "float8"], "expected a data type of float32"),
        (["--rank", "0"], "also needs --job, --world-size"),
        (["--rank", "0", "--world-size", "2", "--job", "x", "--workers", "2"], "leave out --workers"),
        (["--world-size", "2"], "--workers"),
        (["--hosts", "h1"], "--testbed"),
        (["--testbed", "t", "--workers", "2"], "--hosts"),
    ],
)
def test_an_allreduce_that_cannot_be(netsum: Netsum, options: list[str], sentence: str) -> None:
    assert sentence in refused(netsum("allreduce", *options), 2)


def test_an_allreduce_between_the_hosts_of_no_testbed(netsum: Netsum) -> None:
    assert "no testbed no-such-testbed is up" in refused(netsum("allreduce", "--testbed", "no-such-testbed"))


def test_one_rank_alone_says_who_did_not_come(netsum: Netsum) -> None:
    words = ["--rank", "0", "--world-size", "2", "--job", "alone", "--join-timeout", "3"]
    result = netsum("allreduce", *words)
    # On a fresh machine the worker compiles first, and says so.
    *compiling, error = result.stderr.splitlines()
    assert result.exit_code == 1
    assert all(line.startswith("netsum: compil") for line in compiling)
    assert error.startswith("netsum: ")
    assert "[1] have not joined" in error


def test_a_stuck_slot_names_who_is_missing_and_the_end_of_the_job_ends_its_ranks(
    netsum: Netsum, controller: str
) -> None:
    plan = Plan.of("64KiB", repeats=1_000_000, warmups=0, timeout_s=DEADLINE_S)
    resume = threading.Event()

    def rank(number: int) -> bool:
        def echo(message: dict[str, Any]) -> None:
            if number == 1 and message["event"] == "round":
                resume.wait(DEADLINE_S)

        one = RankOptions("stuck", number, 2, plan, controller, join_timeout_s=DEADLINE_S)
        return take_part(one, echo)

    with ThreadPoolExecutor(2) as pool:
        ranks: list[Future[bool]] = [pool.submit(rank, number) for number in range(2)]
        try:
            deadline = time.monotonic() + DEADLINE_S
            said = ""
            while "worker 1 has not contributed" not in said and time.monotonic() < deadline:
                time.sleep(0.5)
                said = netsum("job", "show", "stuck").stdout
            assert "worker 0 waits for" in said
            assert "worker 1 has not contributed" in said
            assert "worker 1 has not contributed" in netsum("job", "watch", "stuck", "--views", "1").stdout
            worker = document(netsum("job", "show", "stuck", "--json"))["workers"][0]
            assert worker["report"]["stuck"]["missing"] == [1]
        finally:
            netsum("job", "delete", "stuck")
            resume.set()
        for each in ranks:
            with pytest.raises(JobLostError, match="an operator deleted the job"):
                each.result(DEADLINE_S)


@needs_shell
def test_a_shell_reads_what_the_controller_wrote(netsum: Netsum) -> None:
    script = "print([entry.match['dst'].exact.value[-1] for entry in table_entry['l2_forward'].read()])"
    done = netsum("shell", "loopback", script=script)
    assert (done.exit_code, done.stdout) == (0, "[1, 2]\n")


def test_a_shell_without_p4runtime_shell_names_the_package(
    netsum: Netsum, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "p4runtime_sh", None)
    sentence = refused(netsum("shell", "loopback", script=""))
    assert "needs the Python package p4runtime-shell: pip install 'p4runtime-shell>=" in sentence
    assert "'setuptools<81'" in sentence


@needs_shell
def test_a_shell_leaves_the_switch_to_the_controller(netsum: Netsum) -> None:
    script = "entry = table_entry['l2_forward'](action='drop')\nentry.match['dst'] = '02:00:00:00:00:09'\nentry.insert()"
    sentence = refused(netsum("shell", script=script))
    assert sentence == "line 3 of the script: this session is read-only: give --election-id to write"
    assert document(netsum("switch", "list", "--json"))[0]["state"] == "ready"


@needs_shell
def test_a_shell_script_that_fails_is_reported_with_its_line(netsum: Netsum) -> None:
    assert refused(netsum("shell", script="a = 1\nb = a / 0\n")) == "line 2 of the script: division by zero"
    assert "line 1 of the script: invalid syntax" in refused(netsum("shell", script="a b\n"))


def test_a_shell_with_wrong_arguments(netsum: Netsum) -> None:
    assert "--program and --p4info must be given together" in refused(
        netsum("shell", "--program", "x.json", script=""), 2
    )
    words = ["--program", "/nonesuch", "--p4info", "/nonesuch"]
    assert "there is no such file" in refused(netsum("shell", *words, script=""), 2)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--election-id", "1"], "has election id 1: use a higher one"),
        (["--program", __file__, "--p4info", __file__], "only with a higher --election-id"),
        (["--device-id", "7", "--p4runtime", "{address}"], "this switch is device 1, not 7"),
        (["nonesuch"], "there is no switch nonesuch"),
        (["--testbed", "no-such-testbed"], "no testbed no-such-testbed is up"),
    ],
)
def test_a_shell_that_cannot_be(netsum: Netsum, words: list[str], sentence: str) -> None:
    address = document(netsum("switch", "show", "--json"))["address"]
    assert sentence in refused(netsum("shell", *(word.format(address=address) for word in words), script=""))


@pytest.mark.parametrize("window_bytes", [70_000, 0])
def test_a_watch_shows_the_link_of_each_worker_and_the_window_where_there_is_one(
    window_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    worker = WorkerView(rank=0, host="h1", report=Report(chunks=1, window_bytes=window_bytes, link="program"))
    screen = console()
    with screen.capture() as printed:
        screen.print(picture(JobView(name="job", workers=[worker])))
    assert ("kB" in printed.get()) == ("70 kB" in printed.get()) == (window_bytes > 0)
    assert "program" in printed.get()
