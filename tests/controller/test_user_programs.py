"""Programs of the user's own: runtime files become P4Runtime updates, wrong ones are refused by place, a switch is loaded."""

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format

from controller.errors import ConfigError
from controller.p4info import canonical, read_p4info
from controller.user_programs import load as loading
from controller.user_programs.files import FileOptions, UserProgram, choose, keep_copies
from controller.user_programs.runtime_file import RuntimeFile
from controller.user_programs.values import bits_of
from netsum_common.p4rt import p4info_pb2, p4runtime_pb2
from sim.switch.p4runtime import P4RuntimeServer
from sim.switch.ports import Chassis
from tests.raw_p4runtime import RawClient
from topologies.generated import star

PROGRAMS = Path(__file__).parents[1] / "programs"
Update = p4runtime_pb2.Update

P4INFO = """
tables {
  preamble { id: 33554433 name: "MyIngress.route" alias: "route" }
  match_fields { id: 1 name: "hdr.ipv4.dst" bitwidth: 32 match_type: LPM }
  action_refs { id: 16777217 }
  action_refs { id: 16777218 }
}
tables {
  preamble { id: 33554434 name: "MyIngress.filter" alias: "filter" }
  match_fields { id: 1 name: "port" bitwidth: 9 match_type: EXACT }
  match_fields { id: 2 name: "kind" bitwidth: 16 match_type: TERNARY }
  match_fields { id: 3 name: "length" bitwidth: 16 match_type: RANGE }
  match_fields { id: 4 name: "mark" bitwidth: 8 match_type: OPTIONAL }
  action_refs { id: 16777218 }
}
tables {
  preamble { id: 33554435 name: "MyIngress.spread" alias: "spread" }
  match_fields { id: 1 name: "dst" bitwidth: 48 match_type: EXACT }
  action_refs { id: 16777218 }
  implementation_id: 285212673
}
actions {
  preamble { id: 16777217 name: "MyIngress.forward" alias: "forward" }
  params { id: 1 name: "dst" bitwidth: 48 }
  params { id: 2 name: "port" bitwidth: 9 }
}
actions { preamble { id: 16777218 name: "MyIngress.drop" alias: "drop" } }
actions { preamble { id: 16777219 name: "MyIngress.unused" alias: "unused" } }
"""

FORWARD = {"dst": "08:00:00:00:01:11", "port": 1}
ROUTE = {
    "table": "MyIngress.route",
    "match": {"hdr.ipv4.dst": ["10.0.1.17", 24]},
    "action_name": "MyIngress.forward",
    "action_params": FORWARD,
}
FILTER = {"table": "filter", "match": {"port": 3}, "priority": 7, "action_name": "drop", "action_params": {}}


def names() -> p4info_pb2.P4Info:
    info = p4info_pb2.P4Info()
    text_format.Parse(P4INFO, info)
    return info


def runtime(folder: Path, **members: Any) -> RuntimeFile:
    path = folder / "s1-runtime.json"
    path.write_text(json.dumps({"target": "bmv2", **members}))
    return RuntimeFile(path)


def entry(folder: Path, **members: Any) -> p4runtime_pb2.TableEntry:
    (update,) = runtime(folder, table_entries=[members]).updates(names())
    found: p4runtime_pb2.TableEntry = update.entity.table_entry
    return found


def test_an_entry_by_prefix(tmp_path: Path) -> None:
    """Bits behind the prefix are cleared, values are as short as they can be."""
    assert entry(tmp_path, **ROUTE) == text_format.Parse(
        """table_id: 33554433
        match { field_id: 1 lpm { value: "\\n\\000\\001\\000" prefix_len: 24 } }
        action { action { action_id: 16777217
          params { param_id: 1 value: "\\010\\000\\000\\000\\001\\021" } params { param_id: 2 value: "\\001" } } }""",
        p4runtime_pb2.TableEntry(),
    )


def test_what_matches_anything_is_left_out(tmp_path: Path) -> None:
    assert not entry(tmp_path, **ROUTE | {"match": {"hdr.ipv4.dst": ["10.0.0.0", 0]}}).match
    assert not entry(tmp_path, **{key: ROUTE[key] for key in ROUTE if key != "match"}).match
    any_kind = {"port": 3, "kind": [5, 0], "length": [0, 65535]}
    assert [match.field_id for match in entry(tmp_path, **FILTER | {"match": any_kind}).match] == [1]


def test_masks_ranges_and_optional_values(tmp_path: Path) -> None:
    match = {"mark": 255, "length": [64, 1500], "kind": [0x0806, 0xFF00], "port": [3]}
    found = entry(tmp_path, **FILTER | {"match": match})
    assert found.priority == 7
    assert [each.field_id for each in found.match] == [1, 2, 3, 4]
    port, kind, length, mark = found.match
    assert port.exact.value == b"\x03"
    assert (kind.ternary.value, kind.ternary.mask) == (b"\x08\x00", b"\xff\x00")
    assert (length.range.low, length.range.high) == (b"\x40", b"\x05\xdc")
    assert mark.optional.value == b"\xff"
    _, _, one, _ = entry(tmp_path, **FILTER | {"match": match | {"length": [64, 64]}}).match
    assert (one.range.low, one.range.high) == (b"\x40", b"\x40")


def test_defaults_modify_and_all_else_is_inserted(tmp_path: Path) -> None:
    default = {"table": "route", "default_action": True, "action_name": "drop", "action_params": {}}
    replicas = [{"egress_port": 1, "instance": 4}, {"egress_port": 2}]
    updates = runtime(
        tmp_path,
        table_entries=[default, ROUTE],
        multicast_group_entries=[{"multicast_group_id": 5, "replicas": replicas}],
        clone_session_entries=[{"clone_session_id": 57, "replicas": replicas, "packet_length_bytes": 96}],
    ).updates(names())
    assert [update.type for update in updates] == [Update.MODIFY, Update.INSERT, Update.INSERT, Update.INSERT]
    assert updates[0].entity.table_entry.is_default_action
    group = updates[2].entity.packet_replication_engine_entry.multicast_group_entry
    session = updates[3].entity.packet_replication_engine_entry.clone_session_entry
    assert (group.multicast_group_id, session.session_id, session.packet_length_bytes) == (5, 57, 96)
    for one in (group, session):
        assert [(each.egress_port, each.instance) for each in one.replicas] == [(1, 4), (2, 0)]


WRONG = [
    ({"table": "rout"}, r'table: expected a table of the program \(MyIngress\.filter, .*found "rout"'),
    ({"action_name": "unused"}, r"action_name: expected an action of the table \(MyIngress\.drop, MyIngress\.forward\)"),
    ({"action_params": {"port": 1}}, r"action_params\.dst: missing"),
    ({"action_params": FORWARD | {"vlan": 1}}, r"action_params: unknown key vlan; expected one of dst, port"),
    ({"action_params": FORWARD | {"port": 512}}, r"action_params\.port: expected a value of 9 bits, found 512"),
    ({"action_params": FORWARD | {"dst": "10.0.0.1"}}, "a value of 48 bits, which an address of 32 bits is not"),
    ({"action_params": FORWARD | {"dst": "h1"}}, "expected an integer, an Ethernet address, an IPv4 or IPv6 address"),
    ({"match": {"hdr.ipv4.src": 1}}, r"match: unknown key hdr\.ipv4\.src; expected hdr\.ipv4\.dst"),
    ({"match": {"hdr.ipv4.dst": "10.0.0.1"}}, r"match\.hdr\.ipv4\.dst: expected \[value, length of the prefix\]"),
    ({"match": {"hdr.ipv4.dst": ["10.0.0.1", 33]}}, "a length of the prefix between 0 and 32"),
    ({"priority": 3}, r"priority: a table with exact and LPM fields only has no priorities"),
    ({"default_action": True}, r"match: expected no match for a default action"),
    ({"entries": 1}, r"unknown key entries; expected one of table, match"),
    (FILTER | {"match": {}}, r"match\.port: missing, but an exact match needs a value"),
    (FILTER | {"priority": 0}, "priority: expected a priority from 1"),
    (FILTER | {"match": {"port": 1, "length": [9, 3]}}, r"match\.length: expected \[lowest, highest\], found \[9, 3\]"),
    (FILTER | {"table": "spread", "match": {"dst": 1}}, "has an action profile, which such a file cannot fill"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "said"), WRONG)
def test_a_wrong_entry_is_reported_with_its_place(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=r"s1-runtime\.json: table_entries\[0\][.:].*" + said):
        runtime(tmp_path, table_entries=[ROUTE | changes]).updates(names())


def test_a_file_that_is_none_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "s1.json"
    with pytest.raises(ConfigError, match=r"cannot read .*s1\.json: No such file"):
        RuntimeFile(path)
    path.write_text('{"table_entries": [}')
    with pytest.raises(ConfigError, match=r"s1\.json, line 1, column 20: Expecting value"):
        RuntimeFile(path)
    path.write_text("[]")
    with pytest.raises(ConfigError, match=r"s1\.json: the file: expected an object"):
        RuntimeFile(path)
    for members, said in (
        ({"target": "tofino"}, 'target: expected "bmv2", found "tofino"'),
        ({"table_entry": []}, "unknown key table_entry; expected one of target"),
    ):
        with pytest.raises(ConfigError, match=said):
            runtime(tmp_path, **members)


def test_values() -> None:
    assert [bits_of(each, 16) for each in (0, -1, 65535, [7])] == [0, 65535, 65535, 7]
    assert bits_of("2001:db8::1", 128) == 0x20010DB8 << 96 | 1
    assert [canonical(each) for each in (0, 255, 256)] == [b"\x00", b"\xff", b"\x01\x00"]
    for wrong in (True, None, 1.5, 1 << 16, -(1 << 15) - 1, [], [1, 2], "0x10"):
        with pytest.raises(ValueError, match=r"value of 16 bits|an integer"):
            bits_of(wrong, 16)


def program(folder: Path, name: str) -> Path:
    """Write what p4c leaves in a build folder of the tutorials."""
    (folder / f"{name}.json").write_text('{"pipelines": []}')
    (folder / f"{name}.p4.p4info.txtpb").write_text(P4INFO)
    return folder / f"{name}.json"


def chosen(folder: Path, switches: Any, **options: list[str]) -> dict[str, UserProgram]:
    read = [
        FileOptions.read(f"--{kind}", options.get(kind, []), list(switches))
        for kind in ("program", "p4info", "entries")
    ]
    return choose(switches, folder, *read)


def switches(**members: str) -> Any:
    (one,) = star(1).switches.values()
    return {"s1": type(one)(**vars(one) | members), "s2": type(one)(**vars(one) | {"name": "s2"})}


def test_where_a_switch_has_its_program_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named for the switch, in the topology, named for all, in the runtime file: in this order."""
    (topo := tmp_path / "topo").mkdir()
    monkeypatch.chdir(tmp_path)
    named, own, default, last = (program(tmp_path, name) for name in ("named", "own", "default", "last"))
    runtime_json = {"bmv2_json": "last.json", "p4info": "last.p4.p4info.txtpb"}
    (topo / "s1-runtime.json").write_text(json.dumps(runtime_json))
    with_entries = switches(runtime_json="topo/s1-runtime.json")
    with_both = switches(runtime_json="topo/s1-runtime.json", program="own.json")
    found = chosen(topo, with_both, program=["default.json", "s1=named.json"])
    assert [found[name].json.resolve() for name in ("s1", "s2")] == [named, default]
    assert [found[name].entries is None for name in ("s1", "s2")] == [False, True]
    assert found["s1"].p4info.resolve() == tmp_path / "named.p4.p4info.txtpb"
    assert chosen(topo, with_both, program=["default.json"])["s1"].json.resolve() == own
    assert chosen(topo, with_entries, program=["default.json"])["s1"].json.resolve() == default
    found = chosen(topo, with_entries)
    assert {name: each.json.resolve() for name, each in found.items()} == {"s1": last}
    assert chosen(topo, switches()) == {}


def test_what_is_wrong_with_the_files_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program(tmp_path, "mine")
    (tmp_path / "empty.json").write_text("{}")
    (tmp_path / "alone.json").write_text('{"pipelines": []}')
    for options, said in (
        ({"program": ["none.json"]}, r"cannot read the program none\.json: No such file"),
        ({"program": ["empty.json"]}, r"empty\.json is not a program that p4c compiled for BMv2"),
        ({"program": ["mine.p4.p4info.txtpb"]}, r"mine\.p4\.p4info\.txtpb is not JSON, which p4c writes"),
        ({"program": ["alone.json"]}, r"expected the P4Info of alone\.json in alone\.p4info\.txtpb or .* --p4info s1=FILE"),
        ({"program": ["s9=mine.json"]}, "--program s9=mine.json: there is no switch 's9': expected s1, s2"),
        ({"program": ["mine.json", "mine.json"]}, "--program: expected one file for all switches, found two"),
        ({"program": ["mine.json"], "p4info": ["none.txtpb"]}, "cannot read the P4Info none.txtpb"),
        ({"program": ["mine.json"], "entries": ["none.json"]}, r"cannot read none\.json: No such file"),
        ({"program": ["mine.json"], "entries": ["alone.json"]}, r"alone\.json: unknown key pipelines; expected"),
        ({"p4info": ["mine.p4.p4info.txtpb"]}, "--p4info mine.* expected --program FILE beside it"),
        ({"entries": ["s1=empty.json"]}, r"empty\.json: expected bmv2_json, or --program s1=FILE"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=said):
            chosen(tmp_path, switches(), **options)
    with pytest.raises(
        ConfigError, match=r"switches\.s1\.runtime_json: there is no file gone\.json, looked for in"
    ):
        chosen(tmp_path, switches(runtime_json="gone.json"))


def test_a_switch_is_loaded_with_its_program_and_entries(tmp_path: Path) -> None:
    """From the copies in the run folder, and again after it lost everything; a later controller becomes primary."""
    info = read_p4info(PROGRAMS / "entities.p4info.txtpb")
    table = next(each for each in info.tables if each.preamble.alias == "lpm_table")
    (field,) = table.match_fields
    forward = {"table": table.preamble.name, "match": {field.name: ["10.0.0.0", 8]}, "action_name": "forward"}
    entries = tmp_path / "mine.json"
    entries.write_text(json.dumps({"table_entries": [forward | {"action_params": {"port": 3}}]}))
    files = UserProgram(PROGRAMS / "entities.json", PROGRAMS / "entities.p4info.txtpb", entries, ())
    keep_copies(tmp_path, {"s1": files})
    entries.unlink()
    for _ in range(2):
        with P4RuntimeServer(Chassis(), "127.0.0.1:0", device_id=0) as server:
            site = {
                "p4runtime": server.address,
                "device_id": 0,
                "ip": "10.0.0.254",
                "mac": "02:00:0a:00:00:fe",
            }
            state = {"switches": {"s1": site | {"forward": {}, "spare_ports": [], "ports": {}}}, "hosts": {}}
            (tmp_path / "testbed.json").write_text(json.dumps(state))
            loading.load(tmp_path, "s1")
            client = RawClient(0, server.address, (0, 1))
            request = p4runtime_pb2.ReadRequest(device_id=0)
            request.entities.add().table_entry.table_id = table.preamble.id
            found = [entity.table_entry for answer in client.stub.Read(request) for entity in answer.entities]
            assert [each.match[0].lpm.prefix_len for each in found] == [8]
            client.tear_down()
