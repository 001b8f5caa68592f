"""Expressions of any width against Python's integers, which are unlimited like BMv2's."""

from __future__ import annotations

import operator
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.switch import Packets, Switch, load_program
from tests.sim.switch.minimal import document, field, hexstr, op, write

_ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_BITWISE = {"&": operator.and_, "|": operator.or_, "^": operator.xor}
_COMPARE = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_EXPRESSIONS = 12


def _cut(value: int, width: int, signed: bool) -> int:
    value %= 1 << width
    return value - (1 << width) if signed and value >> (width - 1) else value


def _evaluate(node: dict[str, Any], values: dict[str, int]) -> int:
    if node["type"] == "field":
        return values[node["value"][1]]
    if node["type"] == "hexstr":
        return int(node["value"], 16)
    inner = node["value"]
    name = inner["op"]
    if name == "?":
        return _evaluate(inner["left"] if _evaluate(inner["cond"], values) else inner["right"], values)
    right = _evaluate(inner["right"], values)
    if name == "~":
        return ~right
    if name in ("b2d", "d2b"):
        return right if name == "b2d" else int(right != 0)
    if name == "not":
        return int(not right)
    left = _evaluate(inner["left"], values)
    if name in ("and", "or"):
        return int(left and right) if name == "and" else int(left or right)
    if name == "two_comp_mod":
        return _cut(left, right, True)
    if name == "usat_cast":
        return min(max(left, 0), (1 << right) - 1)
    if name == "sat_cast":
        return min(max(left, -(1 << (right - 1))), (1 << (right - 1)) - 1)
    if name in ("<<", ">>"):
        return left << right if name == "<<" else left >> right
    if name in ("/", "%"):
        return 0 if right == 0 else (left // right if name == "/" else left % right)
    return int((_ARITHMETIC | _BITWISE | _COMPARE)[name](left, right))


@st.composite
def _fields(draw: st.DrawFn) -> list[list[Any]]:
    widths = draw(
        st.lists(st.integers(1, 70) | st.sampled_from([8, 16, 32, 64, 128, 200]), min_size=3, max_size=5)
    )
    return [[f"f{n}", w, w > 1 and draw(st.booleans())] for n, w in enumerate(widths)] + [["small", 7, False]]


def _trees(fields: list[list[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    leaf = st.sampled_from([field("i", f[0]) for f in fields]) | st.integers(0, 2**40).map(hexstr)
    unsigned = st.sampled_from([field("i", f[0]) for f in fields if not f[2]])
    amount = st.just(field("i", "small")) | st.integers(0, 90).map(hexstr)

    def grow(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        condition = st.builds(op, st.sampled_from(sorted(_COMPARE)), inner, inner)
        conditions = condition | st.builds(op, st.sampled_from(["and", "or"]), condition, condition)
        conditions |= st.builds(op, st.just("not"), st.none(), condition)
        conditions |= st.builds(op, st.just("d2b"), st.none(), inner)
        casts = st.sampled_from(["two_comp_mod", "usat_cast", "sat_cast"])
        return (
            st.builds(op, st.sampled_from(sorted(_ARITHMETIC | _BITWISE)), inner, inner)
            | st.builds(op, st.just("~"), st.none(), inner)
            | st.builds(op, st.sampled_from(["<<", ">>"]), inner, amount)
            | st.builds(op, casts, inner, st.integers(1, 80).map(hexstr))
            | st.builds(op, st.just("b2d"), st.none(), conditions)
            | st.builds(op, st.just("?"), inner, inner, conditions)
            | st.builds(op, st.sampled_from(["/", "%"]), unsigned, unsigned)
        )

    return st.recursive(leaf, grow, max_leaves=8)


@st.composite
def _programs(draw: st.DrawFn) -> tuple[list[list[Any]], list[tuple[int, bool, dict[str, Any]]]]:
    fields = draw(_fields())
    results = []
    for tree in draw(st.lists(_trees(fields), min_size=1, max_size=_EXPRESSIONS)):
        width = draw(st.integers(1, 70) | st.sampled_from([128, 300]))
        results.append((width, width > 1 and draw(st.booleans()), tree))
    return fields, results


def _pack(fields: list[tuple[int, int]]) -> bytes:
    bits = "".join(f"{value % (1 << width):0{width}b}" for value, width in fields)
    return int(bits + "0" * (-len(bits) % 8), 2).to_bytes((len(bits) + 7) // 8, "big")


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(_programs(), st.integers(0, 2**32))
def test_any_expression(
    tmp_path_factory: Any, program: tuple[list[list[Any]], list[tuple[int, bool, dict[str, Any]]]], seed: int
) -> None:
    fields, results = program
    outputs = [[f"r{n}", width, signed] for n, (width, signed, _) in enumerate(results)]
    primitives = [
        {"op": "assign", "parameters": [field("o", f"r{n}"), tree]} for n, (_, _, tree) in enumerate(results)
    ]
    directory: Path = tmp_path_factory.mktemp("expressions")
    switch = Switch(
        load_program(write(document(fields, outputs, primitives), directory / "p.json")), directory
    )
    rng = random.Random(seed)
    for _ in range(8):
        values = {}
        for name, width, signed in fields:
            edges = [0, 1, (1 << width) - 1, 1 << (width - 1), (1 << (width - 1)) - 1]
            values[name] = _cut(rng.choice([rng.getrandbits(width), rng.choice(edges)]), width, signed)
        frame = _pack([(values[name], width) for name, width, _ in fields])
        ((_, out),) = switch.inject(Packets.of([(0, frame)]), 0)
        assert out == _pack([(_evaluate(tree, values), width) for width, _, tree in results])


@pytest.mark.parametrize("width", [8, 33, 64, 65, 100, 128, 129, 300])
def test_division_and_multiplication(width: int, tmp_path: Path) -> None:
    operands = [["a", width, False], ["b", width, False]]
    names = ["/", "%", "*"]
    outputs = [[f"r{n}", width, False] for n in range(3)]
    primitives = [
        {"op": "assign", "parameters": [field("o", f"r{n}"), op(name, field("i", "a"), field("i", "b"))]}
        for n, name in enumerate(names)
    ]
    switch = Switch(
        load_program(write(document(operands, outputs, primitives), tmp_path / "p.json")), tmp_path
    )
    rng = random.Random(width)
    for divisor_bits in (0, 1, width // 2, width - 1, width):
        a, b = rng.getrandbits(width), rng.getrandbits(divisor_bits) if divisor_bits else 0
        ((_, out),) = switch.inject(Packets.of([(0, _pack([(a, width), (b, width)]))]), 0)
        # Division by zero, which BMv2 leaves undefined, gives zero.
        quotient, rest = divmod(a, b) if b else (0, 0)
        assert out == _pack([(quotient, width), (rest, width), (a * b, width)])


@pytest.mark.parametrize("name", ["|", "^"])
def test_a_negative_value_joined_with_an_unsigned_one_stays_negative(name: str, tmp_path: Path) -> None:
    joined = op(name, field("i", "signed"), field("i", "unsigned"))
    is_negative = op("b2d", None, op("<", joined, hexstr(0)))
    primitive = {"op": "assign", "parameters": [field("o", "negative"), is_negative]}
    inputs = [["signed", 8, True], ["unsigned", 8, False]]
    program = write(document(inputs, [["negative", 8, False]], [primitive]), tmp_path / "p.json")
    switch = Switch(load_program(program))
    for signed, unsigned in ((0x80, 0x01), (0xFF, 0x80), (0x7F, 0xFF)):
        ((_, out),) = switch.inject(Packets.of([(0, bytes([signed, unsigned]))]), 0)
        assert out[0] == (signed >= 0x80)
