"""How a testbed is, and how people are shown it."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netsum.command_errors import CommandError
from netsum.terminal import ProgressRows, echo, print_json

if TYPE_CHECKING:
    from topologies.run_folder import RunningTestbed


def condition(testbed: "RunningTestbed") -> str:
    """Return the condition of a testbed: "up", or a description of the fault."""
    if testbed.abandoned:
        return f"crashed: `netsum testbed down --testbed {testbed.name}` clears it away"
    if testbed.folder_deleted:
        return f"its run folder was deleted: `netsum testbed down --testbed {testbed.name}` ends it"
    if not testbed.state["ready"]:
        return "coming up"
    from topologies.links import link_states

    state = testbed.state
    down_and_up = f"`netsum testbed down --testbed {testbed.name}`, and `netsum testbed up`"
    nodes = {**state["hosts"], **state["switches"]}
    if gone := [name for name, node in nodes.items() if not testbed.runs(node["namespace_pid"])]:
        return f"the namespaces of {', '.join(gone)} are gone: {down_and_up}"
    processes = state["switches"] | ({"controller": state["controller"]} if state["controller"] else {})
    if ended := [name for name, process in processes.items() if not testbed.runs(process["pid"])]:
        return f"{' and '.join(ended)} ended: `netsum testbed restart {ended[0]}`"
    for flow in state["traffic"]:
        if not all(map(testbed.runs, flow.get("pids", ()))):
            return f"the cross traffic from {flow['from']} to {flow['to']} ended: {down_and_up}"
    for link, up in zip(state["links"], link_states(testbed), strict=True):
        if up is False:
            one, other = (end.partition("-p")[0] for end in link["ends"])
            return f"the link {' to '.join(link['ends'])} is down: `netsum testbed link {one} {other} up`"
    return "up"


def require_ready(testbed: "RunningTestbed") -> None:
    """Refuse a testbed that does not run."""
    if testbed.abandoned:
        raise CommandError(
            f"the testbed {testbed.name} has crashed: `netsum testbed down --testbed {testbed.name}` clears it away"
        )
    if not testbed.state["ready"]:
        raise CommandError(f"the testbed {testbed.name} is not up yet")


def as_document(testbed: "RunningTestbed", condition: str) -> dict[str, Any]:
    """Return a testbed for JSON: its ``testbed.json``, its `condition`, and of every link whether it is `up` (null: unknown)."""
    from topologies.links import link_states

    state = testbed.state
    if not state["ready"]:
        return {**state, "condition": condition}
    links = [{**link, "up": up} for link, up in zip(state["links"], link_states(testbed), strict=True)]
    return {**state, "links": links, "condition": condition}


def print_up(testbed: "RunningTestbed", as_json: bool) -> None:
    """Print a testbed that has just come up, and what to try first."""
    if as_json:
        print_json(testbed.state)
        return
    show(testbed, "up")
    hosts = list(testbed.state["hosts"])
    address = testbed.state["hosts"][hosts[-1]]["ip"]
    echo(f"try: netsum testbed exec {hosts[0]} ping -c 3 {address}")


def node_environment(testbed: "RunningTestbed") -> dict[str, str]:
    """Return the environment of a command on a node: it finds this testbed, its controller, and this netsum."""
    import sys

    from topologies.leftovers import MARK

    environment = {
        **os.environ,
        MARK: testbed.run_id,
        "NETSUM_TESTBED": testbed.name,
        # The shell must find this installation's `netsum` first.
        "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)]),
    }
    if testbed.state["controller"] is not None:
        environment["NETSUM_CONTROLLER"] = testbed.controller_address
    return environment


def show(testbed: "RunningTestbed", condition: str) -> None:
    """Print the parts of a testbed, and its `condition`."""
    from topologies.links import link_states
    from topologies.units import rate_text

    state = testbed.state
    if not state["ready"]:
        echo(f"{state['name']}: {condition}")
        return
    own = state["own_programs"]
    runs = "programs of your own" if own else f"{state['lanes']} lanes"
    echo(f"{state['name']} ({state['topology']}, {state['switch_kind']}, {runs}): {condition}")
    rows = ProgressRows("link", "state", "?addresses", ">rate", ">loss", ">queue", ">latency")
    nodes = {**state["hosts"], **state["switches"]}
    for one, up in zip(state["links"], link_states(testbed), strict=True):
        rows.add(
            " to ".join(one["ends"]),
            {True: "up", False: "down", None: ""}[up],
            " to ".join(nodes[end.partition("-p")[0]]["ip"] for end in one["ends"]),
            "unlimited" if one["rate_bps"] is None else rate_text(one["rate_bps"]),
            f"{one['loss_ppm'] / 10_000:g} %",
            "" if one["queue_pkts"] is None else str(one["queue_pkts"]),
            f"{one['latency_ns'] / 1e6:g} ms",
        )
    rows.print()
    controller = state["controller"]
    gives = f", which gives the switches netsum's program of {state['lanes']} lanes"
    echo("controller: " + ("none" if controller is None else controller["address"] + gives))
    if controller is not None and controller.get("window"):
        echo(f"window: {controller['window']}")
    if own:
        echo(f"your own programs: {', '.join(own)}, in {path_text(state['folder'])}/programs")
    echo(f"run folder: {path_text(state['folder'])}")


def path_text(path: str | Path) -> str:
    """Write a path as short as it can be from here."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
