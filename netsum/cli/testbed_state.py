"""How a testbed is, and how people are shown it."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netsum.cli.faults import CommandError
from netsum.cli.output import print_json, print_table, table

if TYPE_CHECKING:
    from topologies.run_folder import RunningTestbed


def condition(testbed: "RunningTestbed") -> str:
    """Say how a testbed is: "up", or what is not as it should be."""
    from topologies.runs import runs_as

    if testbed.abandoned:
        return f"crashed: `netsum testbed down {testbed.name}` clears it away"
    if not testbed.state["ready"]:
        return "coming up"
    processes = dict(testbed.state["switches"])
    if testbed.state["controller"] is not None:
        processes["controller"] = testbed.state["controller"]
    ended = [name for name, process in processes.items() if not runs_as(process["pid"])]
    return f"{' and '.join(ended)} ended: `netsum testbed restart {ended[0]}`" if ended else "up"


def require_ready(testbed: "RunningTestbed") -> None:
    """Refuse a testbed that does not run."""
    if testbed.abandoned:
        raise CommandError(
            f"the testbed {testbed.name} has crashed: `netsum testbed down {testbed.name}` clears it away"
        )
    if not testbed.state["ready"]:
        raise CommandError(f"the testbed {testbed.name} is not up yet")


def tell_up(testbed: "RunningTestbed", as_json: bool) -> None:
    """Print a testbed that has just come up, and what to try first."""
    if as_json:
        print_json(testbed.state)
        return
    show({**testbed.state, "condition": "up"})
    hosts = list(testbed.state["hosts"])
    address = testbed.state["hosts"][hosts[-1]]["ip"]
    print(f"try: netsum testbed exec {hosts[0]} ping -c 3 {address}", flush=True)


def show(state: dict[str, Any]) -> None:
    """Print what a testbed consists of, given what its ``testbed.json`` holds and its `condition`."""
    from topologies.units import rate_text

    if not state["ready"]:
        print(f"{state['name']}: {state['condition']}")
        return
    print(
        f"{state['name']} ({state['topology']}, {state['switch_kind']}, {state['lanes']} lanes): {state['condition']}"
    )
    made = table("link", "addresses", "rate", "loss", "queue", "latency")
    nodes = {**state["hosts"], **state["switches"]}
    for one in state["links"]:
        made.add_row(
            " to ".join(one["ends"]),
            " to ".join(nodes[end.partition("-p")[0]]["ip"] for end in one["ends"]),
            "unlimited" if one["rate_bps"] is None else rate_text(one["rate_bps"]),
            f"{one['loss_ppm'] / 10_000:g} %",
            "" if one["queue_pkts"] is None else str(one["queue_pkts"]),
            f"{one['latency_ns'] / 1e6:g} ms",
        )
    print_table(made)
    controller = state["controller"]
    print("controller: " + ("none" if controller is None else controller["address"]))
    print(f"run folder: {path_text(state['folder'])}", flush=True)


def path_text(path: str | Path) -> str:
    """Write a path as short as it can be from here."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
