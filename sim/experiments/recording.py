"""Recordings of the links of one run, for Wireshark and for Perfetto."""

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from controller.service.page import recorded_page
from sim.experiments.captures import write_capture
from sim.experiments.experiment import Point
from sim.experiments.perfetto import packet_text, write_trace
from sim.experiments.running import Watch, run_point
from sim.experiments.scenario import Programs, Scenario
from sim.experiments.store import ResultStoreError
from sim.network.engine.engine_records import PS_PER_NS
from sim.network.engine.trace import LEAVES

PACKETS_SHOWN = 20_000  # Packets of the page: a browser holds them all.


def record(
    point: Point, programs: Programs, folder: Path, captured: tuple[str, ...], traced: bool
) -> list[Path]:
    """Run a point again and write down its packets; returns the files.

    `captured`: links, by name (``h1>s1``, with * for any), each of which gets a capture of its own. Raises SettingError,
    PointFailedError, ResultStoreError: with a sentence.
    """
    watch = Watch(captured, traced)
    run_point(point, programs, watch)
    scenario = watch.scenario
    assert scenario is not None
    written = []
    try:
        for name, number in scenario.network.link_numbers.items():
            if scenario.network.link_records[number]["tapped"]:
                path = folder / f"{name.replace('>', '-to-')}.pcap"
                write_capture(scenario.network, number, path)
                written.append(path)
        if traced:
            path = folder / "trace.json"
            write_trace(scenario, watch.jobs, path)
            page = folder / "trace.html"
            title = f"{point}: {PACKETS_SHOWN:,} packets at most"
            page.write_text(
                recorded_page(
                    title, (name.split(">") for name in scenario.network.link_numbers), _steps(scenario)
                ),
                encoding="utf-8",
            )
            written += [path, page]
    except OSError as error:
        raise ResultStoreError(f"cannot write to {folder}: {error.strerror or error}") from None
    return written


def _steps(scenario: Scenario) -> Iterator[dict[str, Any]]:
    """Yield the first packets as the window shows them, each when it leaves by a link or is lost there."""
    ends = {number: name.split(">") for name, number in scenario.network.link_numbers.items()}
    rows = chain.from_iterable(rows for rows, _ in scenario.network.trace.parts)
    for row in islice(rows, PACKETS_SHOWN):
        source, target = ends[int(row["where"])]
        what = packet_text(row)
        yield {
            "at_ns": int(row["time_ps"]) // PS_PER_NS,
            "from": source,
            "to": target,
            "text": f"{source} → {target}: {what}",
            "short": what,
            "lost": bool(row["what"] != LEAVES),
        }
