"""Packet-in and packet-out."""

from tests.dataplane.dataplane.frames import ethernet
from tests.dataplane.dataplane.jobs import worker_at
from tests.dataplane.dataplane.target import CPU_PORT, Entry, Target

CONTROLLER_MAC = 0x02C0FFEE0000


def test_packet_out_leaves_where_the_controller_says(target: Target) -> None:
    frame = ethernet(worker_at(3).mac, CONTROLLER_MAC, 0x88B6, bytes(range(60)))
    for port in (0, 3, 7):
        assert target.send_from_controller(port, frame) == [(port, frame)]


def test_packet_in_says_where_it_came_from(target: Target) -> None:
    entry = Entry("l2_forward", {"dst": CONTROLLER_MAC}, "forward", {"port": CPU_PORT})
    target.insert([entry])
    frame = ethernet(CONTROLLER_MAC, worker_at(2).mac, 0x88B6, bytes(range(60)))
    packets = [(port, frame) for port in (0, 2, 7)]
    assert target.send(packets) == []
    assert target.received_by_controller(len(packets)) == packets
    target.delete([entry])
