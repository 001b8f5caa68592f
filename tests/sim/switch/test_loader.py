"""Refusals of the loader, which name the feature."""

from __future__ import annotations

import contextlib
import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest

from sim.switch import Packets, Switch, UnsupportedProgramError, load_program
from tests.sim.switch.minimal import document, field, hexstr, op, write
from tests.sim.switch.scenarios import PROGRAMS, SCENARIOS


@pytest.fixture
def minimal() -> dict[str, Any]:
    assign = {"op": "assign", "parameters": [field("o", "r"), field("i", "a")]}
    return document([["a", 8, False]], [["r", 8, False]], [assign])


def _refusal(path: Path) -> UnsupportedProgramError:
    with pytest.raises(UnsupportedProgramError) as caught:
        load_program(path)
    assert str(path) in str(caught.value)
    return caught.value


def test_minimal_program_loads(minimal: dict[str, Any], tmp_path: Path) -> None:
    assert load_program(write(minimal, tmp_path / "p.json")).ingress.start == "t"


def test_everything_unsupported_is_listed_at_once(minimal: dict[str, Any], tmp_path: Path) -> None:
    primitives = minimal["actions"][0]["primitives"]
    primitives += [{"op": "teleport", "parameters": []}, {"op": "recirculate", "parameters": []}]
    primitives.append({"op": "assign", "parameters": [field("o", "r"), op("**", hexstr(1), hexstr(2))]})
    primitives.append({"op": "assign", "parameters": [field("o", "nowhere"), hexstr(2)]})
    minimal["extern_instances"] = [{"name": "x", "id": 0, "type": "wormhole", "attribute_values": []}]
    minimal["calculations"] = [{"name": "c", "id": 0, "algo": "bmv2_hash", "input": []}]
    refusal = _refusal(write(minimal, tmp_path / "p.json"))
    for name in (
        "primitive 'teleport'",
        "primitive 'recirculate' with 0 arguments",
        "operator '**'",
        "unknown field o.nowhere",
        "extern x of type wormhole",
        "hash algorithm 'bmv2_hash'",
    ):
        assert any(name in feature for feature in refusal.features), refusal.features


@pytest.mark.parametrize(
    ("primitive", "named"),
    [
        ({"op": "_jump", "parameters": [field("i", "a")]}, "jump to a place that is not a constant"),
        (
            {
                "op": "assign",
                "parameters": [field("o", "r"), op("sat_cast", field("i", "a"), field("i", "a"))],
            },
            "cast to a width that is not a constant",
        ),
    ],
)
def test_what_must_be_constant(
    minimal: dict[str, Any], tmp_path: Path, primitive: dict[str, Any], named: str
) -> None:
    minimal["actions"][0]["primitives"].append(primitive)
    assert named in str(_refusal(write(minimal, tmp_path / "p.json")))


def _as_p4c_bm(document: dict[str, Any]) -> dict[str, Any]:
    """Write a program as p4c-bm did: no version, actions by their names, the action profile inside its table."""
    del document["__meta__"]
    names: dict[int, str] = {}
    for action in document["actions"]:
        if action["name"] in names.values():  # p4c writes several actions `NoAction`.
            action["name"] += f".{action['id']}"
        names[action["id"]] = action["name"]
    for pipeline in document["pipelines"]:
        profiles = {each["name"]: each for each in pipeline.pop("action_profiles", [])}
        for table in pipeline["tables"]:
            following = dict(zip(table["actions"], table["action_ids"], strict=True))
            table["next_tables"] = {
                names[following[event]] if event in following else event: state
                for event, state in table["next_tables"].items()
            }
            table["actions"] = [names[each] for each in table.pop("action_ids")]
            if "action_profile" in table:
                profile = profiles[table.pop("action_profile")]
                table |= {"act_prof_name": profile["name"], "selector": profile.get("selector")}
    return document


@pytest.mark.parametrize("name", ["matching", "traffic", "externs"])
def test_a_program_in_the_format_of_p4c_bm_gives_the_same_packets(name: str, tmp_path: Path) -> None:
    (scenario,) = (each for each in SCENARIOS if each.name == name)
    path = PROGRAMS / f"{name}.json"
    document = _as_p4c_bm(json.loads(path.read_text()))
    outputs = []
    for each in (path, write(document, tmp_path / "old.json")):
        switch = Switch(load_program(each))
        scenario.set_up(switch)
        frames = scenario.frames(random.Random(1))
        outputs.append(
            [list(switch.inject(Packets.of([(0, frame)]), now)) for now, frame in enumerate(frames)]
        )
    assert outputs[0] == outputs[1]
    assert any(outputs[0])


def test_a_program_for_the_target_l2_switch_is_refused(minimal: dict[str, Any], tmp_path: Path) -> None:
    """The target's port is in a field that simple_switch, and so this engine, overwrites: all packets would leave by port 0."""
    forward = [field("standard_metadata", "egress_port"), hexstr(1)]
    document = _as_p4c_bm(minimal)
    for action in document["actions"]:
        action["primitives"] = [{"op": "assign", "parameters": forward}]
    refusal = _refusal(write(document, tmp_path / "p.json"))
    assert "a port chosen by standard_metadata.egress_port" in str(refusal)
    forward[0] = field("standard_metadata", "egress_spec")
    load_program(write(document, tmp_path / "p.json"))


def test_other_documents_are_refused(minimal: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text("not json")
    assert "not JSON" in str(_refusal(path))
    assert "JSON that is no program of BMv2's (it has no actions, no deparsers" in str(
        _refusal(write({}, path))
    )
    old = copy.deepcopy(minimal)
    old["__meta__"]["version"] = [1, 0]
    assert "version" in str(_refusal(write(old, path)))
    psa = copy.deepcopy(minimal)
    psa["pipelines"][0]["name"] = "psa_ingress"
    assert "not v1model" in str(_refusal(write(psa, path)))
    torn = copy.deepcopy(minimal)
    del torn["actions"][0]["primitives"]
    assert "malformed" in str(_refusal(write(torn, path)))


def _mutated(rng: random.Random) -> dict[str, Any]:
    name = rng.choice(["stacks", "matching", "externs", "traffic"])
    document: dict[str, Any] = json.loads((PROGRAMS / f"{name}.json").read_text())
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, value in items:
            places.append((node, key))
            walk(value)

    walk(document)
    for holder, key in rng.sample(places, 2):
        holder[key] = rng.choice([None, 0, -1, "", "x", [], {}, True])
    return document


def test_mutated_documents_load_or_are_refused(tmp_path: Path) -> None:
    loaded = 0
    for seed in range(300):
        path = write(_mutated(random.Random(seed)), tmp_path / "p.json")
        with contextlib.suppress(UnsupportedProgramError):
            load_program(path)
            loaded += 1
    assert 0 < loaded < 300


def test_source_positions_do_not_matter(minimal: dict[str, Any], tmp_path: Path) -> None:
    one = load_program(write(minimal, tmp_path / "a.json"))
    minimal["actions"][0]["source_info"] = {"line": 7}
    minimal["program"] = "/somewhere/else.p4"
    assert load_program(write(minimal, tmp_path / "b.json")).fingerprint == one.fingerprint
    Switch(one, tmp_path)
    assert Switch(one, tmp_path).cached
