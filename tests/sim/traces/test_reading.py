"""Traces that are wrong: one sentence each with the node, before anything runs."""

import os
from pathlib import Path
from typing import Any

import pytest

from sim.traces.graph import TraceError
from sim.traces.reading import read_trace
from tests.sim.traces.files import chakra_bytes, chakra_node, write_chakra

GOAL = """num_ranks 2
// a message to and fro
rank 0 {
l1: calc 1000
l2: send 4096b to 1 tag 7 cpu 0 nic 0
l2 requires l1
l3: recv 8b from 1 tag 8
l4: calc 500 cpu 1
l4 irequires l2
}
rank 1 {
l1: recv 4096b from 0 tag 7
l2: send 8b to 0 tag 8 /* the answer */
l2 requires l1
}
"""
AICB = """HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 1 pp: 1 all_gpus: 4 checkpoints: 0
2
first -1 1000 ALLREDUCE 4096 2000 ALLGATHER 8192 3000 REDUCESCATTER 16384 1
second\t-1\t100\tNONE\t0\t200\tNONE\t0\t300\tALLTOALL\t512\t1
"""


def written(folder: Path, text: str) -> str:
    path = folder / "trace.txt"
    path.write_text(text)
    return str(path)


def test_goal_is_a_graph_of_messages(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, GOAL), 2)
    found = {(step.ranks[0], step.node.id): step for step in trace.steps}
    numbers = {each: step.node.id for step in trace.steps for each in step.members}
    sent = found[0, "l2"]
    assert [(each.node.kind, each.node.size) for each in trace.steps].count(("send", 4096)) == 1
    assert sent.node.ranks == (0, 1)
    waits = {name: [numbers[each] for each in found[0, name].after[0]] for name in ("l2 begins", "l4 begins")}
    assert waits == {"l2 begins": ["l1"], "l4 begins": ["l2 begins"]}
    assert set(found[1, "l1"].after[0]) == set(sent.members)
    assert trace.computing_ns(2) == 2 * 1500


def test_aicb_is_a_forward_pass_and_a_backward_pass_with_the_groups_of_its_header(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, AICB), 4)
    steps = [(str(each.node.id), each.node.kind, each.ranks, each.node.size) for each in trace.steps]
    assert [each[1:] for each in steps if each[0] == "1.first.forward.ALLREDUCE"] == [
        ("all-reduce", (0, 1), 4096),
        ("all-reduce", (2, 3), 4096),
    ]
    assert [each[1:3] for each in steps if each[0] == "2.second.weights.ALLTOALL"] == [
        ("all-to-all", (0, 2)),
        ("all-to-all", (1, 3)),
    ]
    assert trace.computing_ns(1) == 1000 + 100 + 200 + 300 + 2000 + 3000
    numbers = {each: step.node.id for step in trace.steps for each in step.members}
    waits = {step.node.id: [numbers[each] for each in step.after[0]] for step in trace.steps}
    # Only collectives of weights go on while the rank computes.
    assert waits["2.second.forward"] == ["1.first.forward.ALLREDUCE"]
    assert waits["1.first.inputs"] == ["2.second.weights"]
    assert waits["1.first.weights"] == ["1.first.inputs.ALLGATHER"]


def test_a_micro_benchmark_of_aicb_runs_one_collective_after_the_other(tmp_path: Path) -> None:
    text = "MICRO\n2\n" + "micro -1 1 NONE 0 1 NONE 0 1 ALLGATHER 4096 1\n" * 2
    trace = read_trace(written(tmp_path, text), 4)
    assert [step.node.kind for step in trace.steps if len(step.ranks) == 4] == ["all-gather"] * 2
    assert trace.computing_ns(1) == 2


def test_collectives_of_groups_of_one_rank_are_said_to_be_none(tmp_path: Path) -> None:
    """As in AICB's `muti_all_reduce.txt`, whose gradients are those of tensors that 8 ranks share."""
    text = (
        AICB.replace("group: 2", "group: 8")
        .replace("ALLREDUCE 4096", "NONE 0")
        .replace("ALLGATHER 8192", "NONE 0")
    )
    place = written(tmp_path, text)
    assert "nothing is communicated by 8 workers: expected collectives in a group of more" in error_of(
        place, 8
    )
    assert len(read_trace(place, 16).steps) > 0


def test_layers_for_more_ranks_than_there_may_be_nodes_are_not_made(tmp_path: Path) -> None:
    path = tmp_path / "layers.txt"
    path.write_text("MICRO\n1000\n")
    assert "at most 2,000,000 nodes of all ranks together, found 4,096,000 or more" in error_of(path, 4096)
    path.write_text("MICRO\n0\n")
    assert "line 2: the number of layers: expected a whole number from 1 to" in error_of(path)


def test_nodes_are_counted_over_all_ranks_while_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sim.traces.reading.MOST_NODES", 5)
    place = write_chakra(tmp_path, [[chakra_node(at, "compute") for at in range(3)]] * 2)
    assert error_of(place).endswith("nodes of all ranks together, found more, from node 2 on")


@pytest.mark.parametrize(
    ("text", "workers", "sentence"),
    [
        (
            GOAL[: GOAL.index("l2 requires l1\n}")],
            2,
            "the file is cut off in rank 1, after node l2 (send) of rank 1",
        ),
        (GOAL[: GOAL.index("rank 1")], 2, "rank 1 is missing: expected 2 ranks"),
        (GOAL.replace("num_ranks 2", "num_ranks 1"), 1, "one block for each of 1 ranks, found rank 1"),
        (
            GOAL.replace("l2 requires l1", "l2 requires l9"),
            2,
            "line 6, after node l2 (send) of rank 0: l2 requires l9: there is no node l9",
        ),
        (
            GOAL.replace("irequires l2", "irequires l8"),
            2,
            "l4 irequires l8: there is no node l8",
        ),
        (GOAL.replace("l1: calc", "l1: recv 9b from 1\nl1: calc"), 2, "rank 0 has node l1 (receive) twice"),
        (
            GOAL.replace("l3: recv", "l3: steal"),
            2,
            "line 7, after node l2 (send) of rank 0: expected a line of GOAL, found 'l3: steal",
        ),
        (
            GOAL.replace("l2 requires l1", "l2 requires l1\nl1 requires l2"),
            2,
            "a cycle: each waits for the next one: node l",
        ),
        (GOAL, 3, "the trace has 2 ranks: expected workers = 2, found 3"),
        (AICB[: AICB.index("\t300")], 4, "cut off after layer 1 (first): expected 2 layers of 12 columns"),
        (AICB[: AICB.index("second")], 4, "cut off after layer 1 (first): expected 2 layers of 12 columns"),
        (
            AICB.replace("ALLTOALL", "ALLTONONE"),
            4,
            "node 2.second.weights (compute): expected one of NONE, ALLREDUCE",
        ),
        (AICB.replace("pp: 1", "pp: 2"), 4, "expected no stages of a pipeline (1) and no checkpoints (0)"),
        (AICB, 3, "expected workers that groups of 2 times 1 divide, found 3"),
        (
            AICB.replace("3000", "soon"),
            4,
            "node 1.first.weights (compute): ns: expected a whole number from 0 to 1,000,000,000,000,000, found 'soon'",
        ),
        (
            AICB.replace("8192", "-8192"),
            4,
            "node 1.first.inputs.ALLGATHER (all-gather): bytes: expected a whole number from 0 to 281,474,976,710,656",
        ),
        (
            AICB.replace("\n2\n", "\ntwo\n"),
            4,
            "line 2: the number of layers: expected a whole number from 1 to",
        ),
        (
            AICB.replace("group: 2", "group: 0"),
            4,
            "line 1: model_parallel_NPU_group: expected a whole number from 1 to",
        ),
    ],
)
def test_text_that_is_no_trace(text: str, workers: int, sentence: str, tmp_path: Path) -> None:
    assert sentence in error_of(written(tmp_path, text), workers)


def error_of(place: object, workers: int = 2) -> str:
    with pytest.raises(TraceError) as caught:
        read_trace(str(place), workers)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def reduce_of(size: int, number: int = 1, **attributes: Any) -> Any:
    return chakra_node(number, "all-reduce", comm_size=size, **attributes)


@pytest.mark.parametrize(
    ("ranks", "sentence"),
    [
        (
            [[chakra_node(1, "compute", [3]), chakra_node(2, "compute", [1]), chakra_node(3, "compute", [2])]]
            * 2,
            "a cycle: each waits for the next one: node 1 (compute) of rank 0, node 3 (compute) of rank 0, "
            "node 2 (compute) of rank 0, node 1 (compute) of rank 0",
        ),
        (
            [[chakra_node(4, "compute", [4])], []],
            "each waits for the next one: node 4 (compute) of rank 0, node 4 (compute) of rank 0",
        ),
        (
            [[chakra_node(5, "compute", [77])], []],
            "node 5 (compute) of rank 0 waits for node 77, which is not there",
        ),
        ([[chakra_node(6, "compute"), chakra_node(6, "compute")], []], "rank 0 has node 6 (compute) twice"),
        ([[chakra_node(7, "unknown")], []], "node 7 of rank 0 communicates: expected an attribute comm_size"),
        (
            [[reduce_of(8, 8, comm_type=44)], []],
            "node 8 of rank 0 is a collective of type 44, which no contender supports",
        ),
        ([[reduce_of(8, 9)], []], "node 9 (all-reduce) of rank 0: rank 1 does not take part in it"),
        (
            [[reduce_of(8, 10)], [reduce_of(9, 11)]],
            "node 11 (all-reduce) of rank 1 has 9 bytes, but node 10 (all-reduce) of rank 0, which belongs to it, 8",
        ),
        (
            [[reduce_of(8, 12, pg_name="55")], []],
            "node 12 of rank 0: the process group '55' is not in the trace",
        ),
        (
            [[chakra_node(13, "send", comm_size=4, comm_dst=1, comm_tag=2)], []],
            "node 13 (send) of rank 0: rank 1 does not take part in it",
        ),
        (
            [[], [chakra_node(14, "receive", comm_size=4, comm_src=0)]],
            "node 14 (receive) of rank 1: rank 0 does not take part in it",
        ),
        (
            [[chakra_node(15, "send", comm_size=4, comm_dst=9)], []],
            "node 15 (send) of rank 0: expected this rank and others from 0 to 1, found [0, 9]",
        ),
    ],
)
def test_a_graph_that_cannot_run_is_named_by_its_node(ranks: Any, sentence: str, tmp_path: Path) -> None:
    assert error_of(write_chakra(tmp_path, ranks)).endswith(sentence)


@pytest.mark.parametrize(
    ("node", "sentence"),
    [
        (
            reduce_of(-5),
            "node 1 of rank 0: comm_size: expected a whole number from 0 to 281,474,976,710,656, found -5",
        ),
        (
            reduce_of(1 << 62),
            "node 1 of rank 0: comm_size: expected a whole number from 0 to 281,474,976,710,656",
        ),
        (
            chakra_node(1, "all-reduce", comm_size="big"),
            "node 1 of rank 0: comm_size: expected a whole number",
        ),
        (chakra_node(1, "all-reduce", comm_size=2.5), "node 1 of rank 0: comm_size: expected a whole number"),
        (
            chakra_node(1, "all-reduce", comm_size=float("inf")),
            "node 1 of rank 0: comm_size: expected a whole number",
        ),
        (
            reduce_of(8, density="most"),
            "node 1 of rank 0: density: expected a share from 0 to 1, found 'most'",
        ),
        (
            reduce_of(8, density=float("nan")),
            "node 1 of rank 0: density: expected a share from 0 to 1, found nan",
        ),
        (reduce_of(8, comm_type="sum"), "node 1 of rank 0: comm_type: expected a whole number"),
        (
            chakra_node(1, "send", comm_size=8, comm_dst="next"),
            "node 1 of rank 0: comm_dst: expected a whole number",
        ),
        (
            chakra_node(1, "receive", comm_size=8, comm_src=-1),
            "node 1 of rank 0: comm_src: expected a whole number",
        ),
        (
            chakra_node(1, "send", comm_size=8, comm_dst=1, comm_tag="x"),
            "node 1 of rank 0: comm_tag: expected a whole number",
        ),
        (
            chakra_node(1, "compute", (), 1 << 63),
            "node 1 of rank 0: duration_micros: expected a whole number from 0 to 1,000,000,000,000, found 92233",
        ),
        (
            chakra_node(1, "compute", num_ops=10**9),
            "node 1 of rank 0 has num_ops but no duration: expected duration_micros, as no processor's speed is known here",
        ),
    ],
)
def test_a_number_that_cannot_be_is_named_by_its_node(node: Any, sentence: str, tmp_path: Path) -> None:
    assert sentence in error_of(write_chakra(tmp_path, [[node], []]))


@pytest.mark.parametrize("text", ["[" * 100_000, '[{"pg_name": "7", "ranks": ["0", "1"]}]', "[7]"])
def test_process_groups_that_are_none(text: str, tmp_path: Path) -> None:
    about = chakra_node(3, "metadata")
    for values in (f"[{text + ' ' * 9 + 'pg_name'!r}]", f"[{text!r}]pg_name", f"{text}pg_name"):
        about.inputs.values = values
        place = write_chakra(tmp_path, [[about], []])
        assert error_of(place).endswith("node 3: expected a list of process groups, found another text")
    about.inputs.values = repr([text])
    if "pg_name" in text:
        assert "node 3: expected a list of process groups" in error_of(write_chakra(tmp_path, [[about], []]))


def test_a_wait_of_two_ranks_for_each_other_is_a_cycle(tmp_path: Path) -> None:
    one = [
        chakra_node(1, "receive", comm_size=4, comm_src=1),
        chakra_node(2, "send", [1], comm_size=4, comm_dst=1),
    ]
    other = [
        chakra_node(3, "receive", comm_size=4, comm_src=0),
        chakra_node(4, "send", [3], comm_size=4, comm_dst=0),
    ]
    assert "a cycle: each waits for the next one: node" in error_of(write_chakra(tmp_path, [one, other]))
    # Sends before receives are none, although each rank's receive waits for its own send.
    one = [
        chakra_node(1, "send", comm_size=4, comm_dst=1),
        chakra_node(2, "receive", [1], comm_size=4, comm_src=1),
    ]
    other = [
        chakra_node(1, "send", comm_size=4, comm_dst=0),
        chakra_node(2, "receive", [1], comm_size=4, comm_src=0),
    ]
    assert len(read_trace(write_chakra(tmp_path, [one, other]), 2).steps) == 4


def test_a_type_that_the_schema_does_not_have(tmp_path: Path) -> None:
    node = chakra_node(21, "compute")
    node.type = 12
    assert error_of(write_chakra(tmp_path, [[node], []])).endswith(
        "node 21 of rank 0 has the type 12: expected one from 1 to 7"
    )


def test_a_rank_without_a_file(tmp_path: Path) -> None:
    place = write_chakra(tmp_path, [[], [], []])
    (tmp_path / "trace.1.et").unlink()
    for each in (place, tmp_path):
        assert "rank 1 is missing: expected one for each rank" in error_of(each, 3)
    last = "rank 1 is missing: expected a file for each of 4 workers, found 1"
    (tmp_path / "trace.2.et").unlink()
    for each in (place, tmp_path):
        assert last in error_of(each, 4)
    assert read_trace(str(tmp_path / "trace.0.et"), 4).nodes == 0  # A single file is run by every worker.
    assert "there is no such file" in error_of(tmp_path / "none.et")
    (tmp_path / "empty").mkdir()
    assert "rank 0 is missing" in error_of(tmp_path / "empty")
    write_chakra(tmp_path, [[]], "other")
    assert "rank 0 has two files" in error_of(tmp_path)


def test_a_file_that_is_cut_off_at_any_byte(tmp_path: Path) -> None:
    whole = chakra_bytes([chakra_node(300 + at, "compute", micros=1) for at in range(3)])
    first = len(chakra_bytes([]))
    each = (len(whole) - first) // 3
    for length in range(1, len(whole)):
        path = tmp_path / f"{length}.et"
        path.write_bytes(whole[:length])
        if (length - first) % each == 0 and length >= first:
            assert (
                read_trace(str(path), 1).nodes == (length - first) // each
            )  # Between two nodes: a shorter trace.
        else:
            assert "the file is cut off in the message" in error_of(path, 1)
    assert error_of(path, 1).endswith("the file is cut off in the message after node 301 (compute)")


def test_other_versions_and_other_files(tmp_path: Path) -> None:
    path = tmp_path / "trace.et"
    path.write_bytes(chakra_bytes([], version="0.0.9"))
    assert error_of(path).endswith("expected Chakra's version 0.0.4, or a schema 1.0.x or 1.1.x, found 0.0.9")
    node = chakra_node(1, "compute").SerializeToString()
    path.write_bytes(bytes([len(node)]) + node)
    assert error_of(path).endswith("found none")
    path.write_bytes(b"\x04\xff\xff\xff\xff")
    assert error_of(path).endswith("found a first message that is no metadata")
    path.write_text('{"schema": "1.1.0-chakra.0.0.4", "nodes": []}')
    assert error_of(path).endswith("or a workload of AICB, found another text")


def test_a_file_of_10_gb_is_not_read_before_it_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "huge.et"
    path.write_bytes(chakra_bytes([chakra_node(1, "compute")]))
    os.truncate(path, 10**10)  # Without blocks on the disk: zeros, each a message without a field.
    assert error_of(path).endswith("node 0 of rank 0 has the type 0: expected one from 1 to 7")
    with path.open("r+b") as file:
        file.write(chakra_bytes([]) + b"\xff\xff\xff\xff\x7f")
    assert "is longer than 67,108,864 bytes" in error_of(path)
