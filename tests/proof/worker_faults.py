"""Faults of the worker core, one at a time: a test negated, a comparison turned, an operand left out, an assignment changed."""

import ast
import copy
import time
from collections.abc import Iterator
from dataclasses import replace

from tests.proof.induction import Verdict
from tests.proof.source_paths import Sources
from tests.proof.worker import OPAQUE, STEADY, lemmas

FUNCTIONS = (
    "_may_send_next",
    "_send_next",
    "on_datagram",
    "_verdict_on_result",
    "_retire",
    "slot_of",
    "_on_status",
    "_verdict_on_loss",
)

FIELDS = frozenset(
    [
        "chunk",
        "in_flight",
        "pass_number",
        "index",
        "quorum",
        "next_chunk",
        "sending_pass",
        "sending_index",
        "results",
        "failure",
    ]
)
"""Fields whose assignments are changed: those that say which chunks are under way, not timers, counters and codecs."""

_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt,
}  # fmt: skip


def _changes(node: ast.AST) -> Iterator[str]:
    """Change a node in place, one way after the other, and say how; the node is as it was when the next one is asked for."""
    if isinstance(node, ast.If):
        was = node.test
        node.test = ast.UnaryOp(ast.Not(), was)
        yield f"not: {ast.unparse(was)}"
        node.test = was
    elif isinstance(node, ast.BoolOp) or (isinstance(node, ast.Compare) and len(node.ops) == 1):
        if isinstance(node, ast.Compare):
            operator = node.ops[0]
            node.ops = [_TURNED[type(operator)]()]
            yield f"turned: {ast.unparse(node)}"
            node.ops = [operator]
        else:
            operands = node.values
            for left_out in operands:
                node.values = [each for each in operands if each is not left_out]
                yield f"left out: {ast.unparse(left_out)}"
                node.values = operands
    elif isinstance(node, (ast.Assign, ast.AugAssign)):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if isinstance(target, ast.Attribute) and target.attr in FIELDS:
            was = node.value
            node.value = ast.BinOp(was, ast.Add(), ast.Constant(1))
            yield f"plus 1: {ast.unparse(target)}"
            node.value = was


def faults() -> Iterator[tuple[str, Sources]]:
    """Iterate over the faulty cores."""
    sources = Sources.of_core(OPAQUE, STEADY)
    for name in FUNCTIONS:
        function = copy.deepcopy(sources.functions[name])
        faulty = replace(sources, functions={**sources.functions, name: function})
        for node in ast.walk(function):
            for change in _changes(node):
                yield f"{name}: {change}", faulty


ELSEWHERE = (
    "core.in_flight == 0", "core.in_flight != 0", "slot.due",  # timers
    "slot.unanswered", "core.probe_sent_ns[probe]",  # timers
    "core.next_sequence",  # what is presumed lost
    # The congestion window, which only delays.
    "_send_next: left out: block", "_send_next: turned: block", "header[14]", "core.rank != COMPLETER", "core.rank == COMPLETER",
    "core.congestion", "FLAG_CONGESTED", "verdict != SENT_SINCE", "verdict == SENT_SINCE",
    "_send_next: not: has_exponents", "_send_next: left out: has_exponents", "data_blocks",  # codecs
    "on_datagram: not: verdict", "on_datagram: turned: verdict",  # counters, where no other lemma notices it
    "left out: has_lanes\n",  # without lanes, a header is right without being cut
    "left out: slot.chunk < 0",  # a slot that never had a chunk has none in flight
    "behind.chunk == chunk + 1 - core.slot_count",  # if one is in flight there, it is this one
    "verdict == WAITING", "verdict != WAITING", "verdict == SENT_OFTEN", "verdict != SENT_OFTEN",  # timers
    "slot.chunk == core.oldest_chunk", "slot.chunk != core.oldest_chunk",  # what the core says about a late worker
)  # fmt: skip
"""Tests that only timers, codecs, counters and reports depend on, or that the ring of slots implies: no lemma needs them."""


def verdict(name: str, sources: Sources, seed: int = 0) -> Verdict:
    """Ask whether a lemma fails, or must not."""
    begun = time.process_time()
    function = name.partition(":")[0]
    failed = next((v.lemma for v in lemmas(seed, sources, function) if not v.holds), None)
    elsewhere = any(words in f"{name}\n" for words in ELSEWHERE)
    answer = "noticed" if failed else "elsewhere" if elsewhere else "missed"
    words = f"worker fault, {name}: not so: {failed}" if failed else f"worker fault, {name}: nothing fails"
    return Verdict(words, answer, "noticed" if failed else "elsewhere", time.process_time() - begun)
