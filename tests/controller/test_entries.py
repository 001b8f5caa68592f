"""Table entries: those of a job, their translation by the real P4Info, and differences."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller import entries
from controller.entries import Entry, Prefix
from controller.errors import WrongProgramError
from controller.jobs import Job, WorkerEndpoint
from controller.ledger import JobLedger
from controller.p4info import ProgramNames, group_message, read_p4info
from controller.program import require_control_surface
from netsum.programs import compiled_program
from netsum_common.lane_counts import LINK_LANES
from netsum_common.targets import Capabilities, read_capabilities
from tests.controller.admitted import admit

P4INFO = compiled_program(64).p4info


@pytest.fixture(scope="module")
def names() -> ProgramNames:
    return ProgramNames(read_p4info(P4INFO))


@pytest.fixture
def job() -> Job:
    workers = [
        WorkerEndpoint(port=port, ip=f"10.0.0.{port}", mac=f"02:00:00:00:00:{port:02x}", udp_port=9000 + port)
        for port in (4, 7, 9)
    ]
    ledger = JobLedger(Capabilities())
    other = WorkerEndpoint(port=1, ip="10.0.0.99", mac="02:00:00:00:00:99", udp_port=1)
    admit(ledger, "other", [other], 64)
    return admit(ledger, "job", workers, 32, token=0xABCD, unix_seconds=500)


def test_admission_entries(job: Job) -> None:
    last = entries.admission_entries(job)[2]
    assert last == entries.entry(
        "worker_admission",
        {"ingress_port": 9, "ipv4_src": 0x0A000009, "job_id": 2, "worker_id": 2, "token": 0xABCD},
        "admit",
        {
            "worker_bit": 0b100,
            "full_mask": 0b111,
            "num_workers": 3,
            "epoch": 500,
            "pool_base": 128,
            "pool_indices": 64,
            "mcast_group": 2,
        },
    )


def test_results_reach_every_worker(job: Job) -> None:
    assert entries.result_group(job) == entries.MulticastGroup(2, ((4, 1), (7, 2), (9, 3)))
    assert [one.params for one in entries.rewrite_entries(job)] == [
        (("dst_mac", 0x020000000000 + port), ("dst_ip", 0x0A000000 + port), ("dst_port", 9000 + port))
        for port in (4, 7, 9)
    ]


@pytest.mark.parametrize("lanes", LINK_LANES)
def test_the_compiled_programs_have_what_the_controller_fills(lanes: int) -> None:
    names = ProgramNames(read_p4info(compiled_program(lanes).p4info))
    require_control_surface(names, "it")
    can = read_capabilities(compiled_program(lanes).p4info)
    assert (can.lanes, can.slots) == (lanes, 4096)


def every_kind_of_entry(job: Job) -> list[Entry]:
    return [
        *entries.admission_entries(job),
        *entries.rewrite_entries(job),
        entries.address_entry("10.0.0.254", "02:00:00:00:00:fe"),
        *entries.l2_entries({"02:00:00:00:00:01": 0, "ff:ff:ff:ff:ff:ff": 509}),
        entries.l2_default(flood=True),
        entries.l2_default(flood=False),
        entries.l3_entry("10.1.0.0/16", 3, "02:00:00:00:00:01", "02:00:00:00:00:02"),
        entries.l3_entry("0.0.0.0/0", 3, "02:00:00:00:00:01", "02:00:00:00:00:02"),
    ]


def test_entries_survive_their_translation(names: ProgramNames, job: Job) -> None:
    for one in every_kind_of_entry(job):
        assert names.read_entry(names.entry_message(one)) == one


def test_values_are_written_in_the_shortest_form(names: ProgramNames) -> None:
    message = names.entry_message(entries.l2_entries({"00:00:00:00:00:00": 256})[0]).table_entry
    assert message.match[0].exact.value == b"\0"
    assert message.action.action.params[0].value == b"\x01\0"


def test_a_value_that_does_not_fit_is_refused(names: ProgramNames) -> None:
    with pytest.raises(ValueError, match=r"forward\.port has 9 bits, 512 does not fit"):
        names.entry_message(entries.entry("l2_forward", {"dst": 1}, "forward", {"port": 512}))


def test_a_group_message(job: Job) -> None:
    group = group_message(entries.result_group(job)).packet_replication_engine_entry.multicast_group_entry
    assert group.multicast_group_id == 2
    assert [(one.egress_port, one.instance) for one in group.replicas] == [(4, 1), (7, 2), (9, 3)]


def without(text: str, kind: str, alias: str) -> str:
    """The P4Info without one object."""
    start = 0
    while True:
        start = text.index(f"\n{kind} {{", start) + 1
        end = text.index("\n}\n", start) + 3
        if f'alias: "{alias}"' in text[start:end]:
            return text[:start] + text[end:]
        start = end - 1


@pytest.mark.parametrize(
    ("kind", "alias", "message"),
    [
        ("tables", "copy_rewrite", "it has no table copy_rewrite$"),
        ("counters", "stale", "it has no counter stale$"),
        ("actions", "own_address", "it has no action own_address of table switch_address$"),
    ],
)
def test_another_program_is_refused_by_what_it_lacks(
    tmp_path: Path, kind: str, alias: str, message: str
) -> None:
    path = tmp_path / "other.p4info.txtpb"
    path.write_text(without(P4INFO.read_text(), kind, alias))
    names = ProgramNames(read_p4info(path))
    with pytest.raises(WrongProgramError, match=message):
        require_control_surface(names, str(path))


def test_a_program_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.p4info.txtpb"
    path.write_text('pkg_info { arch: "v1model" }')
    with pytest.raises(WrongProgramError, match=r"no table worker_admission, .* no counter late$"):
        require_control_surface(ProgramNames(read_p4info(path)), str(path))


def test_another_key_is_named(tmp_path: Path) -> None:
    path = tmp_path / "other.p4info.txtpb"
    path.write_text(P4INFO.read_text().replace('name: "ipv4_src"', 'name: "source"'))
    with pytest.raises(
        WrongProgramError, match=r"key \(ingress_port, ipv4_src, .*\) instead of \(ingress_port, source,"
    ):
        require_control_surface(ProgramNames(read_p4info(path)), str(path))


@pytest.mark.parametrize("content", [b"tables { nonsense }", b"\xff\xfe\x00"])
def test_a_file_that_is_no_p4info_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.txtpb"
    path.write_bytes(content)
    with pytest.raises(WrongProgramError, match=r"broken\.txtpb"):
        read_p4info(path)
    with pytest.raises(WrongProgramError, match="cannot read the P4Info"):
        read_p4info(tmp_path / "none")


MADE_UP = st.builds(
    lambda table, value, action: entries.entry(table, {"dst": value}, action, {"port": 1}),
    st.sampled_from("ab"),
    st.integers(0, 3) | st.builds(Prefix, st.integers(0, 1), st.integers(1, 2)),
    st.sampled_from("xy"),
)


@given(
    present=st.lists(MADE_UP, unique_by=lambda one: one.key),
    desired=st.lists(MADE_UP, unique_by=lambda one: one.key),
)
def test_differences_lead_from_present_to_desired(present: list[Entry], desired: list[Entry]) -> None:
    delete, insert, modify = entries.difference(present, desired)
    held = {one.key: one for one in present}
    for one in delete:
        del held[one.key]
    for one in insert:
        assert one.key not in held
        held[one.key] = one
    for one in modify:
        assert held[one.key] != one
        held[one.key] = one
    assert held == {one.key: one for one in desired}
    assert len(delete) + len(insert) + len(modify) <= len(present) + len(desired)


def test_program_with_a_control_for_each_lane_is_taken() -> None:
    """As Tofino's: the registers of its lanes have other names, and say the same."""
    path = Path(__file__).resolve().parents[1] / "dataplane" / "tna_logic" / "tna_logic.p4info.txtpb"
    names = ProgramNames(read_p4info(path))
    require_control_surface(names, str(path))
    can = read_capabilities(path)
    assert (can.lanes, can.slots) == (8, 1024)
