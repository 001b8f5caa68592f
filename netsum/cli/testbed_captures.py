"""`netsum testbed captures`."""

from pathlib import Path

from netsum.cli.options import running_testbed_option
from netsum.cli.texts import epilog
from netsum.options import json_option
from netsum_common.options import option

EPILOG = epilog(
    "netsum testbed captures  # one file per port, beside those of the switches",
    "netsum testbed captures --port s1-eth1  # of one port",
    ok="the captures are merged",
    fault="the testbed has no captures: it was brought up without --pcap",
)


def captures(
    testbed: str | None = running_testbed_option(),
    port: str | None = option("A switch's interface, such as s1-eth1; default: all."),
    as_json: bool = json_option(),
) -> None:
    """Merge what came in and what left by each port, over all starts of its switch, into one pcapng file with directions."""
    from host_agent.words import plural
    from netsum.cli.testbed_state import path_text
    from netsum.terminal import echo, print_json
    from topologies.captures import captured_ports, merge
    from topologies.children import TestbedError
    from topologies.run_folder import find_testbed

    found = find_testbed(testbed)
    folder = Path(found.state["folder"]) / "pcaps"
    ports = [port] if port is not None else captured_ports(folder)
    if not ports:
        raise TestbedError(f"the testbed {found.name} has no captures: bring it up with --pcap")
    merged = []
    for each in ports:
        path = folder / f"{each}.pcapng"
        packets = merge(folder, each, path)
        merged.append({"port": each, "file": str(path), "packets": packets})
        if not as_json:
            echo(f"{each}: {plural(packets, 'packet')} in {path_text(path)}")
    if as_json:
        print_json(merged)
