"""Testbeds come up side by side, say why they do not, and leave nothing."""

from pathlib import Path

import pytest

from topologies.children import TestbedError
from topologies.leftovers import processes
from topologies.loopback import LoopbackTestbed
from topologies.mininet_testbed import Bmv2Star

UDP_PORT = 28275

ON_BOTH_SWITCHES = pytest.mark.parametrize(
    "kind",
    [
        pytest.param(LoopbackTestbed, id="embedded"),
        pytest.param(Bmv2Star, id="bmv2", marks=[pytest.mark.bmv2, pytest.mark.root]),
    ],
)
TestbedKind = type[LoopbackTestbed] | type[Bmv2Star]


def skip_if_lacking(kind: TestbedKind) -> None:
    if kind is Bmv2Star and (lacking := Bmv2Star.lacking()):
        pytest.skip(lacking)


@ON_BOTH_SWITCHES
def test_two_at_once(kind: TestbedKind, tmp_path: Path) -> None:
    skip_if_lacking(kind)
    folders = [tmp_path / name for name in ("one", "other")]
    for folder in folders:
        folder.mkdir()
    with kind(2, UDP_PORT, folders[0]) as one, kind(2, UDP_PORT, folders[1]) as other:
        assert one.switch.running
        assert other.switch.running
        assert one.p4runtime_address != other.p4runtime_address
        places = [(host.prefix, host.ip, host.udp_port) for bed in (one, other) for host in bed.hosts]
        assert len(set(places)) == 4
        # Else a port that one found to be free could be taken by the other before it is used.
        assert {host.ip for host in one.hosts}.isdisjoint(host.ip for host in other.hosts) or Bmv2Star is kind
    assert not one.switch.running
    assert not other.switch.running
    for bed in (one, other):
        if isinstance(bed, Bmv2Star):
            assert not list(processes(bed.run_id))


@ON_BOTH_SWITCHES
def test_a_switch_comes_back_at_its_addresses(kind: TestbedKind, tmp_path: Path) -> None:
    skip_if_lacking(kind)
    with kind(2, UDP_PORT, tmp_path) as bed:
        before = (bed.p4runtime_address, bed.hosts, bed.switch.pid)
        bed.switch.kill()
        bed.restart_switch()
        assert (bed.p4runtime_address, bed.hosts) == before[:2]
        assert bed.switch.pid != before[2]
        assert bed.switch.running


def test_a_loopback_switch_that_does_not_start_says_why(tmp_path: Path) -> None:
    with (
        pytest.raises(
            TestbedError, match="the embedded switch ended with status 2 .*expected a number between 0 and"
        ),
        LoopbackTestbed(2, UDP_PORT, tmp_path, drop_ppm=-1),
    ):
        pass


def test_without_bmv2_the_testbed_says_where_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        TestbedError, match=r"BMv2 \(simple_switch_grpc\) is not installed: get p4lang's package"
    ):
        Bmv2Star(1, UDP_PORT, tmp_path)
