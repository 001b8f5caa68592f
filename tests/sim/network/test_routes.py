"""Ways through a network are shortest ones, whatever the graph."""

from collections import deque

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.network.routes import next_links

GRAPHS = st.integers(1, 12).flatmap(
    lambda count: st.tuples(
        st.just(count),
        st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=40),
    )
)


def distances_to(target: int, links: list[tuple[int, int]]) -> dict[int, int]:
    found = {target: 0}
    queue = deque([target])
    while queue:
        node = queue.popleft()
        for source, end in links:
            if end == node and source not in found:
                found[source] = found[node] + 1
                queue.append(source)
    return found


@settings(deadline=None)
@given(GRAPHS)
def test_each_link_leads_one_step_nearer(graph: tuple[int, list[tuple[int, int]]]) -> None:
    count, links = graph
    ends = np.array(links, np.int64).reshape(-1, 2)
    table = next_links(count, ends[:, 0], ends[:, 1])
    for target in range(count):
        distance = distances_to(target, links)
        for node in range(count):
            link = table[node, target]
            if node == target or node not in distance:
                assert link == -1
            else:
                assert links[link][0] == node
                assert distance[links[link][1]] == distance[node] - 1


def test_targets_spread_over_equal_ways() -> None:
    """Two leaves and three spines between them: hosts of one leaf are reached over all spines."""
    links = [(0, spine) for spine in (1, 2, 3)] + [(spine, 4) for spine in (1, 2, 3)]
    links += [(4, host) for host in range(5, 11)]
    ends = np.array(links, np.int64)
    table = next_links(11, ends[:, 0], ends[:, 1])
    assert sorted(links[table[0, host]][1] for host in range(5, 11)) == [1, 1, 2, 2, 3, 3]
