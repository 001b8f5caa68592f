"""The window in a real browser, on a service with fake switches."""

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.service.jobs import Member
from controller.service.page import recorded_page
from controller.service.records import WorkerRecord
from host_agent.job_api.jobs_pb2 import FromWorker, Report, StuckSlot
from host_agent.joining import Membership
from tests.browser import Browser, browser, needs_browser
from tests.controller.service_harness import DEADLINE_S, Bench, fake_leaf_spine, free_port

MARKUP = '<img src=x onerror="document.title=1"> & <b>bold</b> %2F/#?'


@pytest.fixture(name="tab", scope="module")
def _tab() -> Iterator[Browser]:
    with browser() as one:
        one.size(1400)
        yield one


@pytest.fixture(name="bench")
def _bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    with contextlib.closing(Bench(tmp_path, monkeypatch, fake_leaf_spine((2, 2)))) as bench:
        bench.http = ("127.0.0.1", free_port())
        yield bench


def url(bench: Bench, job: str = "") -> str:
    return f"{bench.window}{job and '#/job/' + job}"


def shows(text: str) -> str:
    return f"document.body.innerText.includes({json.dumps(text)})"


def clear(tab: Browser) -> None:
    """Leave the page of an earlier test, which tries to reach its controller, and forget its messages."""
    tab.open("about:blank")
    tab.messages.clear()


def report(member: Membership, **counts: Any) -> None:
    member._stream.send(FromWorker(report=Report(**counts)))


@needs_browser
def test_network_jobs_and_events_as_they_change(bench: Bench, tab: Browser) -> None:
    bench.serve()
    clear(tab)
    tab.open(url(bench))
    tab.until(shows("No jobs: workers make one"))
    for name in ("p1", "l1", "l2", "h1", "h4"):
        assert name in tab.run("document.querySelector('section[aria-label=Network] svg').textContent")
    assert tab.run(
        "document.querySelector('section[aria-label=Network] svg').getAttribute('aria-label')"
    ).startswith("Network: 3 switches and 4 hosts")
    made = bench.operator.create_job("train", 4, slots=128)
    tab.until(shows("train is gathering: workers 0 to 3 missing"))
    members = bench.join_all("train", 4)
    tab.until("document.querySelector('section[aria-label=Jobs] tbody').innerText.includes('running')")
    assert tab.run("document.title") == "netsum: 1 job running"
    tab.until("document.querySelector('section[aria-label=Network] svg').textContent.includes('train 3')")
    rows = "[...document.querySelectorAll('section[aria-label=Events] tbody tr')].map((row) => row.innerText)"
    assert any("worker 3" in row and "attached" in row for row in tab.run(rows))
    bench.operator.delete_job("train")
    tab.until(shows("an operator deleted the job"))
    assert made.name == "train"
    assert not tab.messages
    for member in members:
        member.close()


@needs_browser
def test_a_chunk_that_waits_is_shown_on_its_way_through_the_tree(bench: Bench, tab: Browser) -> None:
    bench.serve()
    members = bench.join_all("train", 4)
    tab.open(url(bench, "train"))
    tab.until(shows("No chunk waits"))
    stuck = StuckSlot(slot=5, chunk=77, waiting_ns=1_500_000_000, switch_answered=True)
    for rank, missing in ((0, [2, 3]), (1, [2, 3]), (2, [3])):
        stuck.missing[:] = missing
        report(members[rank], chunks=77, retransmissions=3, stuck=stuck)
    tab.until(shows("Chunk 77 in slot 5 waits for 1.5 s: worker 3 has not contributed."))
    tree = tab.run(
        "[...document.querySelectorAll('section[aria-label=\"A chunk\\'s way\"] title')].map((each) => each.textContent)"
    )
    assert tree == [
        "p1: has 3 of 4",
        "l1: complete, passed up",
        "worker 0 on h1: contributed",
        "worker 1 on h2: contributed",
        "l2: has 1 of 2",
        "worker 2 on h3: contributed",
        "worker 3 on h4: has not contributed",
    ]
    first = tab.run("document.querySelector('section[aria-label=Workers] tbody tr').innerText")
    assert "slow: others wait for it" in first
    assert "h4" in first
    for member in members:
        member.close()


@needs_browser
def test_a_result_that_failed_its_check_is_shown_with_the_worker_also_at_400_pixels(
    bench: Bench, tab: Browser
) -> None:
    bench.serve()
    members = bench.join_all("train", 4)
    report(members[2], chunks=77, verified=5, corrupted=2)
    tab.size(400)
    try:
        tab.open(url(bench))
        tab.until(shows("train: results failed the check at worker 2"))
        tab.open(url(bench, "train"))
        tab.until(shows("2 results failed the check"))
        first = "document.querySelector('section[aria-label=Workers] tbody tr td')"
        assert tab.run(f"[{first}.dataset.label, {first}.innerText.trim(), {first}.offsetHeight > 0]") == [
            "rank",
            "2",
            True,
        ]
    finally:
        tab.size(1400)
    for member in members:
        member.close()


@needs_browser
def test_it_reconnects_to_a_controller_that_was_restarted(bench: Bench, tab: Browser) -> None:
    bench.serve()
    tab.open(url(bench))
    tab.until("document.getElementById('status').textContent === 'live'")
    bench.stop()
    tab.until(shows("no connection to the controller since"))
    bench.serve()
    bench.operator.create_job("after", 2)
    tab.until("document.getElementById('status').textContent === 'live'")
    tab.until(shows("after is gathering"))


@needs_browser
def test_markup_in_names_is_text(bench: Bench, tab: Browser, tmp_path: Path) -> None:
    bench.serve()
    bench.operator.create_job("old", 2)
    bench.stop()
    # State files of earlier versions have such names.
    (file,) = tmp_path.rglob("state.sqlite3")
    with contextlib.closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE job SET name = ?", (MARKUP,))
        database.execute("UPDATE event SET job = ? WHERE job = 'old'", (MARKUP,))
    bench.serve()
    clear(tab)
    tab.open(url(bench))
    tab.until(shows(MARKUP))
    tab.run("document.querySelector('section[aria-label=Jobs] td a').click()")
    tab.until("document.querySelector('h1')")
    assert tab.run("document.querySelector('h1').innerText") == f"Job {MARKUP} gathering"
    assert tab.run("document.querySelectorAll('main img, main b').length") == 0
    tab.until("document.querySelector('section[aria-label=Events] tbody').innerText.includes('create')")
    assert not tab.messages


@needs_browser
@pytest.mark.parametrize("width", [320, 1400])
def test_no_page_is_wider_than_the_window(bench: Bench, tab: Browser, width: int) -> None:
    bench.serve()
    names = ["train", "x" * 100, *(f"job-{n}" for n in range(48))]
    for name in names:
        bench.operator.create_job(name, 4, slots=1, if_full="queue")
    members = bench.join_all("train", 4)
    tab.size(width)
    try:
        for job in ("", "train", "x" * 100):
            tab.open("about:blank")
            tab.open(url(bench, job))
            tab.until("document.querySelector('main section')")
            tab.size(width)
            assert tab.run("document.documentElement.scrollWidth <= innerWidth"), job
            if not job:
                assert tab.run("document.querySelectorAll('section[aria-label=Jobs] tbody tr').length") == 50
    finally:
        tab.size(1400)
    for member in members:
        member.close()


@needs_browser
@pytest.mark.parametrize("width", [320, 400, 1400])
def test_hosts_are_told_apart_however_narrow_the_window(bench: Bench, tab: Browser, width: int) -> None:
    bench.serve()
    members = bench.join_all("digits-training-of-a-long-name", 4)
    second = bench.join_all("eval", 2)
    tab.open(url(bench))
    tab.size(width)
    try:
        tab.until("document.querySelector('section[aria-label=Network] svg').textContent.includes('eval 1')")
        notes = tab.run(
            "[...document.querySelectorAll('section[aria-label=Network] svg .note')].map((each) => each.textContent)"
        )
        shown = [note for note in notes if note.startswith("dig")]
        assert [note.split()[1] for note in shown] == ["0", "1", "2", "3"]
        assert [note.endswith(" +1") for note in shown] == [True, True, False, False]
        for name in ("node-rack12-gpu-001", "node-rack12-gpu-002"):
            assert tab.run(f"cut(['{name}'], 70, 7.3)").endswith(name[-3:])
    finally:
        tab.size(1400)
    for member in [*members, *second]:
        member.close()


@needs_browser
def test_keys_and_names_for_screen_readers(bench: Bench, tab: Browser) -> None:
    bench.serve()
    bench.operator.create_job("train", 2)
    tab.open("about:blank")
    tab.open(url(bench))
    tab.until(shows("train is gathering"))
    names = tab.names()
    for expected in (
        ("status", ""),
        ("heading", "Network and jobs"),
        ("region", "Network"),
        ("table", "Jobs"),
        ("columnheader", "elements/s"),
        ("table", "The last events of all jobs, the newest first"),
        ("link", "train"),
    ):
        assert expected in names, expected
    assert any(role in ("image", "img") and name.startswith("Network: 3 switches") for role, name in names)
    reached = []
    for _ in range(6):
        tab.press("Tab", 9)
        reached.append(tab.run("document.activeElement.innerText"))
    assert reached[:3] == ["Skip to the contents", "netsum", "train"]
    while tab.run("document.activeElement.innerText") != "train":
        tab.press("Tab", 9)
    # The focus stays, whether a snapshot comes, or an entry before it comes and goes.
    tab.run("page.snapshot.marked = true")
    tab.until("!page.snapshot.marked")
    assert tab.run("document.activeElement.innerText") == "train"
    switch = next(iter(bench.switches.values()))
    for reachable, entries in ((False, "> 1"), (True, "=== 1")):
        switch.reachable = reachable
        tab.until(f"document.querySelectorAll('.attention li').length {entries}")
        assert tab.run("document.activeElement.innerText") == "train"
    tab.press("Enter", 13, "\r")
    tab.until("document.querySelector('h1')?.innerText === 'Job train gathering'")
    assert tab.run("document.activeElement.id") == "main"


@needs_browser
def test_a_job_of_1024_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tab: Browser) -> None:
    with contextlib.closing(Bench(tmp_path, monkeypatch, fake_leaf_spine((32,) * 32))) as bench:
        bench.http = ("127.0.0.1", free_port())
        service = bench.serve()
        bench.operator.create_job("large", 1024)

        async def join_all() -> None:
            job = bench.registry.find("large")
            for rank in range(1023):
                record = WorkerRecord(
                    rank, f"h{rank + 1}", f"127.0.2.{rank + 1}", "", rank % 32 + 1, 4000, "", 0, ""
                )
                member = Member(record, "large", bench.registry.changes, asyncio.Queue())
                job.add_member(member)
                job.take_report(member, Report(chunks=1000 + rank))

        asyncio.run_coroutine_threadsafe(join_all(), service._loop).result(DEADLINE_S)
        tab.open(url(bench))
        tab.until(shows("1,023 of 1,024"))
        tab.open(url(bench, "large"))
        tab.until(shows("Show all 1,024"))
        assert "has not joined" in tab.run(
            "document.querySelector('section[aria-label=Workers] tbody tr').innerText"
        )
        tab.run("document.querySelector('section[aria-label=Workers] button').click()")
        tab.until("document.querySelectorAll('section[aria-label=Workers] tbody tr').length === 1024")
        snapshot = tab.run("page.snapshot.at")
        tab.until(f"page.snapshot.at > {snapshot}")


@needs_browser
def test_a_recorded_run_is_shown_step_by_step_from_one_file(tmp_path: Path, tab: Browser) -> None:
    steps = [
        {
            "from": "h1",
            "to": "s1",
            "short": f"CONTRIBUTE chunk {n}",
            "text": f"h1 → s1: CONTRIBUTE chunk {n}",
            "at_ns": 1500 * n,
        }
        for n in range(30)
    ]
    steps.append(
        {
            "from": "s1",
            "to": MARKUP,
            "short": "RESULT chunk 7",
            "text": f"s1 → {MARKUP}: RESULT chunk 7",
            "lost": True,
        }
    )
    path = tmp_path / "run.html"
    path.write_text(recorded_page("a run </script>", [("s1", "h1"), ("s1", MARKUP)], steps), encoding="utf-8")
    clear(tab)
    tab.open(path.as_uri())
    now = "document.querySelector('main [role=status]').innerText"
    tab.until(f"{now} === 'Step 1 of 31, 0.00 µs: h1 → s1: CONTRIBUTE chunk 0'")
    assert tab.run("document.querySelector('h1').innerText") == "a run </script>"
    tab.press("ArrowRight", 39)
    tab.until(f"{now} === 'Step 2 of 31, 1.50 µs: h1 → s1: CONTRIBUTE chunk 1'")
    tab.press("End", 35)
    tab.until(f"{now}.startsWith('Step 31 of 31: s1 → <img')")
    assert tab.run("document.querySelectorAll('main svg path.bad').length") == 1
    assert tab.run("document.querySelector('[aria-current=step]').innerText").endswith("RESULT chunk 7")
    tab.run("document.querySelector('input[type=search]').focus()")
    tab.call("Input.insertText", text="chunk 7 ")
    tab.until(f"{now} === 'Step 1 of 2, 10.50 µs: h1 → s1: CONTRIBUTE chunk 7'")
    tab.run("document.querySelector('button[aria-label=play]').click()")
    tab.until(f"{now}.startsWith('Step 2 of 2')")
    assert tab.run("document.querySelectorAll('main img').length") == 0
    assert not tab.messages
