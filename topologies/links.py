"""The links of a running testbed: reading their state, taking them down, and changing their properties.

Failures raise `TestbedError` with the reason.
"""

import contextlib
import json
from collections.abc import Mapping

from topologies.children import TestbedError
from topologies.keeper import ask_keeper
from topologies.namespaces import inside_of, run
from topologies.run_folder import RunningTestbed
from topologies.topology import LinkEnd


def find_link(testbed: RunningTestbed, one: str, other: str) -> int:
    """Return the index, in the testbed's `links`, of the link between two nodes."""
    for number, link in enumerate(testbed.state["links"]):
        if {LinkEnd.of(end).node for end in link["ends"]} == {one, other}:
            return number
    raise TestbedError(f"the testbed {testbed.name} has no link between {one} and {other}")


def set_link(testbed: RunningTestbed, number: int, up: bool) -> None:
    """Take a link up or down, as if its cable were plugged in or pulled out."""
    link = testbed.state["links"][number]
    # Only the switch's end is changed: the host loses its carrier, but keeps its addresses and routes.
    node, interface = LinkEnd.of(link["ends"][1]).node, link["interfaces"][1]
    inside = inside_of(testbed.namespace_pid(node))
    run(*inside, "ip", "link", "set", interface, "up" if up else "down", node=node)


def change_link(testbed: RunningTestbed, number: int, changes: Mapping[str, int | None]) -> None:
    """Change rate, loss, latency or queue of a link in both directions, while it carries packets; those in its queue are lost.

    `number`: see `find_link`. `changes`: new values of `topologies.keeper.LINK_FIELDS`. Raises TestbedError if the kernel
    cannot do that, or a queue is given to a link without a rate.
    """
    link = testbed.state["links"][number]
    if changes.get("queue_pkts") is not None and {**link, **changes}["rate_bps"] is None:
        raise TestbedError(
            f"the link {' to '.join(link['ends'])} has no queue, as it has no rate: set a rate too"
        )
    for end in link["ends"]:
        testbed.namespace_pid(LinkEnd.of(end).node)  # Raises if the node is gone.
    ask_keeper(testbed, {"link": number, **changes})


def link_states(testbed: RunningTestbed) -> list[bool | None]:
    """Return for every link whether it is up; None if that cannot be read, as without root."""
    operational: dict[tuple[str, str], bool] = {}
    for node in {LinkEnd.of(link["ends"][1]).node for link in testbed.state["links"]}:
        with contextlib.suppress(TestbedError, OSError, ValueError):
            said = run(*inside_of(testbed.namespace_pid(node)), "ip", "-j", "link", "show", node=node)
            operational |= {(node, one["ifname"]): one.get("operstate") == "UP" for one in json.loads(said)}
    return [
        operational.get((LinkEnd.of(link["ends"][1]).node, link["interfaces"][1]))
        for link in testbed.state["links"]
    ]
