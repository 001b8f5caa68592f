"""Stock clients, unchanged: p4runtime-shell's own commands against a switch process."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip(
    "p4runtime_sh", reason="needs p4runtime-shell: pip install p4runtime-shell 'setuptools<81'"
)

PROGRAMS = Path(__file__).parents[2] / "programs"
DEADLINE_S = 400

SESSION = """
import p4runtime_sh.shell as sh
sh.setup(
    device_id=1,
    grpc_addr="{address}",
    election_id=(0, 1),
    config=sh.FwdPipeConfig("{p4info}", "{json}"),
)
te = sh.TableEntry("lpm_table")(action="forward")
te.match["a"] = "10.0.0.0/8"
te.action["port"] = "7"
te.insert()
te = sh.TableEntry("ternary_table")(action="mark_and_forward", priority=10)
te.match["a"] = "0x10&&&0xf0"
te.match["c"] = "5"
te.action["mark"] = "0x33"
te.action["port"] = "8"
te.insert()
for each in sh.TableEntry("lpm_table").read():
    print("heard lpm", each.match["a"].lpm.prefix_len)
mcast = sh.MulticastGroupEntry(1)
mcast.add(1, 1).add(2, 2)
mcast.insert()
sh.MulticastGroupEntry(1).read(lambda each: print("heard mcast", len(each.replicas)))
clone = sh.CloneSessionEntry(2)
clone.add(3, 4)
clone.insert()
counter = sh.CounterEntry("both_seen")
counter.index = 3
counter.packet_count = 11
counter.byte_count = 12
counter.modify()
for each in sh.CounterEntry("both_seen").read():
    if each.index == 3:
        print("heard counter", each.packet_count, each.byte_count)
meter = sh.MeterEntry("packet_meter")
meter.index = 2
meter.cir, meter.cburst, meter.pir, meter.pburst = 1, 2, 3, 4
meter.modify()
member = sh.ActionProfileMember("profile")(action="forward", member_id=4)
member.action["port"] = "3"
member.insert()
te = sh.TableEntry("profile_table")(member_id=4)
te.match["b"] = "9"
te.insert()
group = sh.ActionProfileGroup("spread")(group_id=1)
group.insert()
out = sh.PacketOut(bytes.fromhex("01" + "00" * 14), egress_port="510", handled="1", padding="0")
received = sh.PacketIn()
out.send()
# It listens for the whole time it is given.
heard = next(filter(None, (list(received.sniff(timeout=0.2)) for _ in range(500))))
print("heard packet", heard[0].packet.payload.hex())
sh.teardown()
print("heard the end")
"""


@pytest.fixture
def switch() -> Iterator[str]:
    """The address of a switch process without ports."""
    command = [sys.executable, "-m", "sim.switch.serve", "--p4runtime", "127.0.0.1:0", "--ports", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    ready = re.search(r"P4Runtime (\S+)", process.stdout.readline())
    assert ready is not None
    yield ready[1]
    process.terminate()
    assert process.wait(DEADLINE_S) == 0
    process.stdout.close()


def test_p4runtime_shell_drives_the_switch(switch: str) -> None:
    script = SESSION.format(
        address=switch, p4info=PROGRAMS / "entities.p4info.txtpb", json=PROGRAMS / "entities.json"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith("heard")] == [
        "heard lpm 8",
        "heard mcast 2",
        "heard counter 11 12",
        "heard packet 010000000000000000000000000001",
        "heard the end",
    ]
