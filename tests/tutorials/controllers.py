"""The exercises that come with a controller, which programs the switches through the tutorials' own P4Runtime library."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.tutorials.bed import DEADLINE_S, Bed

READY_TIMEOUT_S = 300.0
"""A switch compiles the program when it gets it."""

DEVICE_CONFIG = """
import sys
from google.protobuf import descriptor_pb2, descriptor_pool, symbol_database
from google.protobuf.internal import builder

file = descriptor_pb2.FileDescriptorProto(name="p4/tmp/p4config.proto", package="p4.tmp", syntax="proto3")
message = file.message_type.add(name="P4DeviceConfig")
kinds = descriptor_pb2.FieldDescriptorProto
message.field.add(name="reassign", number=1, type=kinds.TYPE_BOOL, label=kinds.LABEL_OPTIONAL)
message.field.add(name="device_data", number=3, type=kinds.TYPE_BYTES, label=kinds.LABEL_OPTIONAL)
described = descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
described = descriptor_pool.Default().FindFileByName(file.name)
builder.BuildMessageAndEnumDescriptors(described, globals())
builder.BuildTopDescriptorsAndMessages(described, "p4.tmp.p4config_pb2", globals())
"""
"""`p4.tmp.p4config_pb2`, which the tutorials have from PI and the package p4runtime has not."""

SITE = """
import importlib.util, sys, types
import p4
package = types.ModuleType("p4.tmp")
package.__path__ = [{folder!r}]
sys.modules["p4.tmp"] = p4.tmp = package
"""


def number_from_zero(topology: Path) -> None:
    """Give the switches the device ids that the tutorials' controllers expect: 0, 1, 2."""
    described = json.loads(topology.read_text())
    for number, switch in enumerate(described["switches"].values()):
        switch["device_id"] = number
    topology.write_text(json.dumps(described))


class Controller:
    """An exercise's ``solution/mycontroller.py``, unchanged but for the addresses of the switches."""

    def __init__(self, bed: Bed) -> None:
        script = bed.folder / "solution" / "mycontroller.py"
        addresses = [bed.address(switch) for switch in bed.state["switches"]]
        text = re.sub(
            r"127\.0\.0\.1:5005(\d)", lambda found: addresses[int(found[1]) - 1], script.read_text()
        )
        script.write_text(text)
        shim = bed.folder / "shim"
        (shim / "tmp").mkdir(parents=True)
        (shim / "tmp" / "p4config_pb2.py").write_text(DEVICE_CONFIG)
        (shim / "sitecustomize.py").write_text(SITE.format(folder=str(shim / "tmp")))
        self.log = bed.folder / "logs" / "controller.log"
        utils = bed.folder.parents[1] / "utils"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-u", str(script)],
                cwd=bed.folder,
                env={**os.environ, "PYTHONPATH": f"{shim}:{utils}"},
                stdout=log,
                stderr=log,
            )

    def await_line(self, text: str, timeout_s: float) -> str:
        """Return the line that holds a text, as soon as the controller has printed it."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            said = self.log.read_text()
            for line in said.splitlines():
                if re.search(text, line):
                    return line
            assert self._process.poll() is None, said
            time.sleep(0.1)
        raise AssertionError(f"no line with {text!r} in {said}")

    def end(self) -> None:
        """End it, as Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def p4runtime(bed: Bed, controller: Controller) -> None:
    """Tunnels both ways between two hosts; the controller reads its table entries and counters back."""
    for address in (r"\\n\\x00\\x02\\x02", r"\\n\\x00\\x01\\x01"):
        entry = rf"MyIngress\.ipv4_lpm: .*{address}.* -> MyIngress\.myTunnel_ingress"
        controller.await_line(entry, READY_TIMEOUT_S)
    controller.await_line("Reading tunnel counters", READY_TIMEOUT_S)
    assert bed.ping([("h1", "h2"), ("h2", "h1")]) == []
    controller.await_line(r"s2 MyIngress\.egressTunnelCounter 100: [1-9]\d* packets", DEADLINE_S)
    controller.await_line(r"s1 MyIngress\.egressTunnelCounter 200: [1-9]\d* packets", DEADLINE_S)


def flowcache(bed: Bed, controller: Controller) -> None:
    """Packets without an entry go to the controller, which answers with packets and entries; idle ones are removed."""
    controller.await_line("Installed P4 Program using SetForwardingPipelineConfig on s3", READY_TIMEOUT_S)
    controller.await_line("SEND_TO_PORT_IN_OPERAND0", READY_TIMEOUT_S)
    assert bed.ping([("h1", "h2"), ("h2", "h3"), ("h3", "h1")]) == []
    controller.await_line("Received PacketIn message", DEADLINE_S)


CHECKS: Mapping[str, Callable[[Bed, Controller], None]] = {"p4runtime": p4runtime, "flowcache": flowcache}
"""By the exercise's name."""
