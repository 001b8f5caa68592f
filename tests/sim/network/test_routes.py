"""Routes in any graph are shortest paths; among equal paths, the target's number chooses."""

from collections import deque
from collections.abc import Callable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.network.engine.engine_records import NODE
from sim.network.engine.ways import link_towards
from sim.network.network_memory import NetworkMemory, RecordRows
from sim.network.routes import find_routes

Links = list[tuple[int, int]]
Graph = tuple[int, Links]

GRAPHS = st.integers(1, 12).flatmap(
    lambda count: st.tuples(
        st.just(count),
        st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=40),
    )
)


@st.composite
def networks(draw: st.DrawFn) -> Graph:
    """Switches with links both ways between them, and hosts at them."""
    switches = draw(st.integers(1, 6))
    pairs = draw(st.lists(st.tuples(st.integers(0, switches - 1), st.integers(0, switches - 1)), max_size=12))
    homes = draw(st.lists(st.integers(0, switches - 1), max_size=8))
    pairs += [(home, switches + host) for host, home in enumerate(homes)]
    return switches + len(homes), [link for one, other in pairs for link in ((one, other), (other, one))]


def routing(count: int, links: Links) -> Callable[[int, int], int]:
    """Return what looks up the link from a node towards another."""
    ends = np.array(links, np.int64).reshape(-1, 2)
    routes = find_routes(count, ends[:, 0], ends[:, 1])
    memory = NetworkMemory(1, 64)
    world = memory.world[0]
    rows = RecordRows(memory.world, "nodes", NODE)
    rows.extend(count, router=routes.router, out_link=routes.out_link, in_link=routes.in_link)
    world["node_count"] = count
    world["router_count"] = len(memory.keep("ways", routes.ways))
    memory.keep("way_choices", routes.choices)
    memory.keep("way_links", routes.links)

    def towards(node: int, target: int) -> int:
        assert rows.count == count  # and their memory is kept
        return int(link_towards(memory.world[0], node, target))

    return towards


def expected_links(count: int, links: Links) -> dict[tuple[int, int], int]:
    """Search from every node against the links' direction; the target's number chooses among equal links."""
    into = [[number for number, (_, end) in enumerate(links) if end == node] for node in range(count)]
    found = {}
    for target in range(count):
        distance, queue, order = {target: 0}, deque([target]), []
        while queue:
            node = queue.popleft()
            order.append(node)
            for source in (links[number][0] for number in into[node]):
                if source not in distance:
                    distance[source] = distance[node] + 1
                    queue.append(source)
        choices: dict[int, list[int]] = {}
        for node in order:
            for number in into[node]:
                if distance[links[number][0]] == distance[node] + 1:
                    choices.setdefault(links[number][0], []).append(number)
        found.update({(node, target): each[target % len(each)] for node, each in choices.items()})
    return found


@settings(deadline=None)
@given(GRAPHS | networks())
def test_each_link_leads_one_step_nearer(graph: Graph) -> None:
    count, links = graph
    towards, expected = routing(count, links), expected_links(count, links)
    for node in range(count):
        for target in range(count):
            assert towards(node, target) == expected.get((node, target), -1)


def test_targets_spread_over_equal_ways() -> None:
    """Two leaves and three spines between them: hosts of one leaf are reached over all spines."""
    links = [(0, spine) for spine in (1, 2, 3)] + [(spine, 4) for spine in (1, 2, 3)]
    links += [link for host in range(5, 11) for link in ((4, host), (host, 4))]
    towards = routing(11, links)
    assert sorted(links[towards(0, host)][1] for host in range(5, 11)) == [1, 1, 2, 2, 3, 3]


def test_hosts_take_no_room_in_the_table_of_ways() -> None:
    hosts = range(1, 2001)
    links = [link for host in hosts for link in ((0, host), (host, 0))]
    ends = np.array(links, np.int64)
    assert find_routes(2001, ends[:, 0], ends[:, 1]).ways.shape == (1, 1)
