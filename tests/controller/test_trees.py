"""Placement of a job's tree: switches, root and children; and placements that cannot be a tree."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.entries import admission_entries, parent_entries, result_group, rewrite_entries
from controller.errors import JobRefusedError
from controller.jobs import Job, ParentLink, WorkerEndpoint
from controller.ledger import JobLedger
from controller.trees import Place, Tree, TreeSwitch, place_tree, sending_to
from host_agent.wire.constants import UDP_PORT
from host_agent.wire.path import Level
from netsum_common.targets import Capabilities
from tests.controller.admitted import admit
from topologies.addresses import ipv4_int

LANES = 64


def switch(name: str, number: int, **links: int) -> TreeSwitch:
    return TreeSwitch(name, f"10.0.{number}.254", f"02:00:00:00:{number:02x}:fe", links)


def leaf_spine(leaves: int, spines: int) -> dict[str, TreeSwitch]:
    """Each leaf is linked to each spine: ports 101, 102, … of a leaf, 1, 2, … of a spine."""
    switches = {
        f"l{leaf}": switch(f"l{leaf}", leaf, **{f"p{spine}": 100 + spine for spine in range(1, spines + 1)})
        for leaf in range(1, leaves + 1)
    }
    for spine in range(1, spines + 1):
        links = {f"l{leaf}": leaf for leaf in range(1, leaves + 1)}
        switches[f"p{spine}"] = switch(f"p{spine}", 200 + spine, **links)
    return switches


def worker(leaf: str, number: int) -> Place:
    ip = f"10.0.{leaf[1:]}.{number}"
    return Place(leaf, WorkerEndpoint(number, ip, f"02:00:00:01:00:{number:02x}", 40000))


def chain(length: int) -> dict[str, TreeSwitch]:
    """l1 to lN in a row."""
    return {
        f"l{at}": switch(
            f"l{at}", at, **{f"l{peer}": 100 + peer for peer in (at - 1, at + 1) if 1 <= peer <= length}
        )
        for at in range(1, length + 1)
    }


@st.composite
def networks(draw: st.DrawFn) -> tuple[dict[str, TreeSwitch], list[Place]]:
    """Switches with random links, and workers at some of them."""
    count = draw(st.integers(1, 7))
    pairs = draw(st.sets(st.tuples(st.integers(1, count), st.integers(1, count)), max_size=12))
    links: dict[int, dict[str, int]] = {at: {} for at in range(1, count + 1)}
    for one, other in pairs:
        if one != other:
            links[one][f"l{other}"], links[other][f"l{one}"] = 100 + other, 100 + one
    switches = {f"l{at}": switch(f"l{at}", at, **own) for at, own in links.items()}
    at = draw(st.lists(st.integers(1, count), min_size=1, max_size=5))
    return switches, [worker(f"l{leaf}", number) for number, leaf in enumerate(at, start=1)]


@given(networks())
def test_no_root_makes_a_lower_or_smaller_tree(network: tuple[dict[str, TreeSwitch], list[Place]]) -> None:
    switches, workers = network
    trees = []
    for root in switches:
        with contextlib.suppress(JobRefusedError):
            trees.append(place_tree(switches, workers, root=root))
    if not trees:
        with pytest.raises(JobRefusedError):
            place_tree(switches, workers)
        return

    def cost(tree: Tree) -> tuple[int, int, str]:
        return max(len(tree.path(rank)) for rank in range(len(workers))), len(tree.branches), tree.root

    assert place_tree(switches, workers) == min(trees, key=cost)


def parts(tree: Tree, switches: dict[str, TreeSwitch]) -> dict[str, Job]:
    return {
        branch.switch: admit(
            JobLedger(Capabilities(lanes=LANES)),
            "job",
            sending_to(switches[branch.switch].ip, branch.children, UDP_PORT),
            8,
            token=77,
            unix_seconds=5,
            parent=branch.parent,
        )
        for branch in tree.branches
    }


def test_a_job_of_one_rack_has_one_switch() -> None:
    switches = leaf_spine(2, 2)
    tree = place_tree(switches, [worker("l2", 1), worker("l2", 2)])
    assert [branch.switch for branch in tree.branches] == ["l2"]
    assert tree.branches[0].parent is None
    jobs = parts(tree, switches)
    assert parent_entries(jobs["l2"]) == []
    assert [one.world_size for one in tree.admissions(jobs)] == [2, 2]


def test_racks_are_joined_at_a_spine() -> None:
    switches = leaf_spine(4, 1)
    workers = [worker("l1", 1), worker("l3", 1), worker("l1", 2), worker("l4", 1)]
    tree = place_tree(switches, workers)
    assert tree.root == "p1"
    assert tree.above == {"l1": "p1", "l3": "p1", "l4": "p1"}
    root, first = tree.branches[0], tree.branches[1]
    assert root.ranks == ((0, 2), (1,), (3,))
    assert [child.port for child in root.children] == [1, 3, 4]
    assert first.switch == "l1"
    assert first.parent == ParentLink(101, "10.0.201.254", "02:00:00:00:c9:fe", 0)
    assert tree.path(2) == (Level(1, ((0,), (2,))), Level(0, ((0, 2), (1,), (3,))))


def test_admissions_are_those_of_the_whole_job() -> None:
    switches = leaf_spine(2, 1)
    workers = [worker("l1", 1), worker("l2", 1), worker("l2", 2)]
    tree = place_tree(switches, workers)
    admissions = tree.admissions(parts(tree, switches))
    assert [one.rank for one in admissions] == [0, 1, 2]
    assert {one.world_size for one in admissions} == {3}
    assert [(one.worker_id, one.num_workers) for one in admissions] == [(0, 1), (0, 2), (1, 2)]
    assert [one.switch[0] for one in admissions] == ["10.0.1.254", "10.0.2.254", "10.0.2.254"]


def test_the_entries_of_a_leaf_and_its_root() -> None:
    switches = leaf_spine(2, 1)
    tree = place_tree(switches, [worker("l1", 1), worker("l2", 1), worker("l2", 2)])
    jobs = parts(tree, switches)
    own, root = jobs["l2"], jobs["p1"]
    *children, parent = admission_entries(own)
    assert [dict(one.params)["worker_bit"] for one in children] == [1, 2]
    assert parent.value("ingress_port") == 101
    assert parent.value("ipv4_src") == ipv4_int(switches["p1"].ip)
    assert parent.value("worker_id") == 1
    assert dict(parent.params)["worker_bit"] == 0
    assert dict(parent.params)["full_mask"] == 0b11
    (up,) = parent_entries(own)
    assert dict(up.params)["port"] == 101
    assert dict(up.params)["worker_id"] == 1
    assert len(rewrite_entries(own)) == 2
    assert parent_entries(root) == []
    assert [one.value("ipv4_src") for one in admission_entries(root)] == [
        ipv4_int(switches[name].ip) for name in ("l1", "l2")
    ]
    assert result_group(root).replicas == ((1, 1), (2, 2))
    assert [child.udp_port for child in root.workers] == [UDP_PORT, UDP_PORT]


def test_jobs_go_to_the_less_loaded_spine() -> None:
    switches = leaf_spine(2, 2)
    workers = [worker("l1", 1), worker("l2", 1)]
    assert place_tree(switches, workers).root == "p1"
    assert place_tree(switches, workers, lambda name: 0.5 * (name == "p1")).root == "p2"


def test_a_switch_with_workers_may_be_above_others() -> None:
    tree = place_tree(chain(2), [worker("l1", 1), worker("l2", 1), worker("l2", 2)])
    assert len(tree.branches) == 2
    root = tree.branches[0]
    assert root.switch in {"l1", "l2"}
    assert sorted(rank for child in root.ranks for rank in child) == [0, 1, 2]
    assert [one.rank for one in tree.admissions(parts(tree, chain(2)))] == [0, 1, 2]


def test_the_tree_is_as_low_as_can_be() -> None:
    tree = place_tree(chain(7), [worker("l1", 1), worker("l7", 1)])
    assert tree.root == "l4"


@pytest.mark.parametrize(
    ("workers", "message"),
    [
        ([worker("l1", number) for number in range(1, 34)], "33 children"),
        ([worker("l1", 1), worker("l9", 1)], "no switch 'l9'"),
        ([], "1 to 4096 workers, not 0"),
        ([worker("l1", 1)] * 4097, "not 4097"),
    ],
)
def test_what_does_not_fit_is_refused(workers: list[Place], message: str) -> None:
    with pytest.raises(JobRefusedError, match=message):
        place_tree(leaf_spine(2, 1), workers)


def test_a_leaf_without_an_uplink_is_refused() -> None:
    switches = leaf_spine(2, 1) | {"l3": switch("l3", 3)}
    with pytest.raises(JobRefusedError, match="no switch can reach all of l1, l3"):
        place_tree(switches, [worker("l1", 1), worker("l3", 1)])


def test_a_tree_that_is_too_high_is_refused() -> None:
    with pytest.raises(JobRefusedError, match="5 levels of switches, at most 4"):
        place_tree(chain(9), [worker("l1", 1), worker("l9", 1)])


def test_33_racks_below_one_spine_are_refused() -> None:
    with pytest.raises(JobRefusedError, match="switch p1 would have 33 children"):
        place_tree(leaf_spine(33, 1), [worker(f"l{leaf}", 1) for leaf in range(1, 34)])


def test_32_racks_of_32() -> None:
    switches = leaf_spine(32, 2)
    workers = [worker(f"l{leaf}", number) for leaf in range(1, 33) for number in range(1, 33)]
    tree = place_tree(switches, workers)
    assert len(tree.branches) == 33
    assert len(tree.path(1023)[0].children) == 32
    with pytest.raises(JobRefusedError, match="2000 workers|children"):
        place_tree(switches, workers + workers[:976])


@given(st.integers(1, 5), st.integers(1, 3), st.data())
def test_every_rank_is_a_child_exactly_once(leaves: int, spines: int, data: st.DataObject) -> None:
    switches = leaf_spine(leaves, spines)
    on = data.draw(st.lists(st.integers(1, leaves), min_size=1, max_size=20))
    workers = [worker(f"l{leaf}", number) for number, leaf in enumerate(on, start=1)]
    tree = place_tree(switches, workers)
    admissions = tree.admissions(parts(tree, switches))
    assert [one.rank for one in admissions] == list(range(len(workers)))
    for rank, one in enumerate(admissions):
        assert one.switch[0] == switches[workers[rank].switch].ip
        assert one.path == tree.path(rank)
