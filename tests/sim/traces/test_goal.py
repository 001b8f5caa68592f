"""GOAL: what waits for what, in whatever order its lines are, and turns at processors and interfaces, as in LogGOPSim."""

import itertools
import tracemalloc
from pathlib import Path

import pytest

from sim.experiments.experiment import parse_experiment
from sim.experiments.running import run_point
from sim.traces.graph import MOST_NODES, TraceError
from sim.traces.reading import read_trace
from tests.sim.experiments.hashes import programs


def goal(folder: Path, *ranks: str) -> str:
    """Write a trace; each rank's operations are separated by semicolons."""
    blocks = [
        f"rank {rank} {{\n" + "\n".join(line.strip() for line in text.split(";")) + "\n}\n"
        for rank, text in enumerate(ranks)
    ]
    path = folder / "trace.goal"
    path.write_text(f"num_ranks {len(ranks)}\n" + "".join(blocks))
    return str(path)


def us(folder: Path, *ranks: str) -> float:
    """Return how long a trace takes on a star of 10 Gbit/s with links of 1 us."""
    text = (
        f'[topology]\nrate = "10gbit"\n[[job]]\ncontender = "ring"\nworkers = {len(ranks)}\n'
        f'workload = "{goal(folder, *ranks)}"\n'
    )
    (row,) = run_point(parse_experiment(text, "goal").points[0], programs()).rows
    return float(row["iteration_ns"]) / 1000


@pytest.mark.parametrize(("cpu", "computing_ns"), [(0, 1_501_000), (1, 1_500_000)])
def test_what_begins_with_another_one_does_so_in_any_order_of_lines(
    cpu: int, computing_ns: int, tmp_path: Path
) -> None:
    """LogGOPSim 76451de prints 1501000 for both orders with one processor."""
    operations = f"l1: calc 1000000; l2: calc 1000; l3: calc 500000 cpu {cpu}; l4: calc 0 cpu 2; "
    dependencies = ("l2 requires l1", "l3 irequires l2", "l4 irequires l3")
    for order in itertools.permutations(dependencies):
        text = operations + "; ".join(order)
        assert read_trace(goal(tmp_path, text), 1).computing_ns(1) == computing_ns
        assert us(tmp_path, text, "") == computing_ns / 1000


def test_messages_that_begin_with_a_receive_are_no_cycle(tmp_path: Path) -> None:
    """MPI_Irecv, then MPI_Isend, at both ends: a send begins when the receive does, not when it ends."""
    one, other = (f"l1: recv 8b from {peer}; l2: send 8b to {peer}; l2 irequires l1" for peer in (1, 0))
    assert us(tmp_path, one, other) == pytest.approx(2.2, rel=0.1)
    with pytest.raises(TraceError, match="a cycle: each waits for the next one"):
        read_trace(goal(tmp_path, "l1: calc 1; l2: calc 1; l1 irequires l2; l2 irequires l1"), 1)


def test_a_broadcast_sends_one_message_after_the_other(tmp_path: Path) -> None:
    size, ranks = 1 << 20, 16
    texts = {}
    for after in ("", "; s{} requires s{}"):
        texts[after] = ["r: calc 0"] * ranks
        for source in range(ranks):
            last = source.bit_length()
            text = f"r: recv {size}b from {source - (1 << (last - 1))}" if source else "r: calc 0"
            for at in range(last, 4):
                text += f"; s{at}: send {size}b to {source + (1 << at)} cpu 0 nic 0; s{at} requires r"
                text += after.format(at, at - 1) if at > last else ""
            texts[after][source] = text
    together, one_by_one = (us(tmp_path, *each) for each in texts.values())
    four_messages = 4 * size * 1538 / 1448 * 8 / 10_000
    assert four_messages < together < 1.01 * four_messages
    assert together == pytest.approx(one_by_one, rel=0.001)


def test_an_interface_sends_first_what_is_ready_first(tmp_path: Path) -> None:
    first = "l1: calc 500000 cpu 1; l2: send 1000000b to 1 tag 1; l2 requires l1; l3: send 100000b to 1 tag 2"
    second = "l1: recv 1000000b from 0 tag 1; l2: recv 100000b from 0 tag 2; l3: calc 3000000; l3 requires l2"
    assert us(tmp_path, first, second) == pytest.approx(85 + 2 + 3000, rel=0.01)
    # Two messages that are ready at the same time share the link on two interfaces, and not on one.
    third, fourth = (
        f"l1: send 1000000b to 1 tag 1; l2: send 1000000b to 2 tag 1 nic {nic}" for nic in (0, 1)
    )
    receiver = "l1: recv 1000000b from 0 tag 1; l2: calc 5000000; l2 requires l1"
    for text, sent_us in ((third, 850), (fourth, 1700)):
        last = "l1: recv 1000000b from 0 tag 1"
        assert us(tmp_path, text, receiver, last) == pytest.approx(sent_us + 5000, rel=0.01)


def test_a_processor_does_one_thing_at_a_time_and_messages_first(tmp_path: Path) -> None:
    for cpu, computed_us in ((0, 300), (1, 200)):
        assert us(tmp_path, f"calc 100000; calc 200000 cpu {cpu}", "") == computed_us
    receiver = "l1: recv 8b from 0; l2: calc 1000000 cpu 1; l2 requires l1"
    for sender, receiver_text, expected_us in (
        ("l1: calc 300000; l2: send 8b to 1", receiver, 1000),  # Both may begin at once.
        ("l1: calc 300000; l2: send 8b to 1; l2 irequires l1", receiver, 1300),
        ("l1: calc 300000; l2: send 8b to 1 cpu 1; l2 irequires l1", receiver, 1000),
        ("l2: send 8b to 1", f"calc 300000; {receiver}", 1300),  # Nobody takes the message out meanwhile.
        ("l2: send 8b to 1", f"calc 300000 cpu 2; {receiver}", 1000),
    ):
        assert us(tmp_path, sender, receiver_text) == pytest.approx(expected_us, abs=3), sender


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "l1: calc 99999999999999999999",
            "node l1 of rank 0: calc: expected a whole number from 0 to 1,000,000,000,000,000",
        ),
        ("l1: calc " + "9" * 5000, "node l1 of rank 0: calc: expected a whole number from 0 to"),
        ("l1: send 999999999999999b to 1", "node l1 of rank 0: bytes: expected a whole number from 0 to"),
        ("l1: send 8b to " + "9" * 30, "node l1 of rank 0: rank: expected a whole number from 0 to"),
        ("l1: send 8b to 1 tag " + "9" * 5000, "node l1 of rank 0: tag: expected a whole number from 0 to"),
        (
            "calc 1 cpu 256",
            "line 3: node in line 3 of rank 0: cpu: expected a whole number from 0 to 255, found '256'",
        ),
        (
            "l1: calc 1 // " + "x" * (1 << 17),
            "expected lines of fewer than 65,536 characters, found a longer one",
        ),
    ],
)
def test_numbers_that_are_too_large_are_named_with_their_node(
    text: str, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(TraceError) as caught:
        read_trace(goal(tmp_path, text), 1)
    assert sentence in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("ranks", ["30000000", "9" * 5000])
def test_a_short_file_that_states_many_ranks_takes_no_memory(ranks: str, tmp_path: Path) -> None:
    path = tmp_path / "huge.goal"
    path.write_text(f"num_ranks {ranks}\nrank 0 {{\n}}\n")
    tracemalloc.start()
    with pytest.raises(TraceError, match="rank 1 is missing|num_ranks: expected a whole number"):
        read_trace(str(path), 2)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def test_more_operations_than_there_may_be_end_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MOST_NODES == 2_000_000
    monkeypatch.setattr("sim.traces.goal.MOST_NODES", 5)
    with pytest.raises(
        TraceError, match="line 8, after node in line 7 .* at most 5 nodes and 20 lines, found more"
    ):
        read_trace(goal(tmp_path, "; ".join(["calc 0"] * 9)), 1)
    assert read_trace(goal(tmp_path, "; ".join(["calc 0"] * 5)), 1).nodes == 5
