"""What happened on the links of one run, for Wireshark and for Perfetto."""

from pathlib import Path

from sim.experiments.captures import write_capture
from sim.experiments.experiment import Point
from sim.experiments.perfetto import write_trace
from sim.experiments.running import Watch, run_point
from sim.experiments.scenario import Programs
from sim.experiments.store import StoreError


def record(
    point: Point, programs: Programs, folder: Path, captured: tuple[str, ...], traced: bool
) -> list[Path]:
    """Run a point again and write down its packets; returns the files.

    Parameters
    ----------
    captured
        Links, by name (``h1>s1``, with * for any), each of which gets a capture of its own.
    traced
        Whether to write a trace of all links.

    Raises
    ------
    SettingError, PointFailedError, StoreError
        With a sentence.
    """
    watch = Watch(captured, traced)
    run_point(point, programs, watch)
    scenario = watch.scenario
    assert scenario is not None
    written = []
    try:
        for name, number in scenario.links.items():
            if scenario.network.link_records[number]["tapped"]:
                path = folder / f"{name.replace('>', '-to-')}.pcap"
                write_capture(scenario.network, number, path)
                written.append(path)
        if traced:
            path = folder / "trace.pftrace"
            write_trace(scenario, watch.jobs, path)
            written.append(path)
    except OSError as error:
        raise StoreError(f"cannot write to {folder}: {error.strerror or error}") from None
    return written
