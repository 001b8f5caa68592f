"""How fast a controller reads all registers of netsum's program from the embedded switch: ``python -m bench.registers``.

One Read request over gRPC, server and client in one process. Most of the time goes into making and parsing messages, so it
depends on the installed protobuf.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence

import google.protobuf
from google.protobuf.internal import api_implementation

from bench.machine import machine_and_date
from common.p4rt import p4runtime_pb2
from controller.p4runtime_writer import P4RuntimeWriter
from controller.program import CompiledFiles
from controller.session import P4RuntimeSession
from netsum.programs import compiled_program
from sim.switch.p4runtime import serve
from sim.switch.ports import Chassis

DEVICE = 1
DEADLINE_S = 600.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Read, and print cells a second."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("--lanes", type=int, default=64, choices=(64, 256))
    parser.add_argument("--most", type=int, default=1 << 62, help="stop after so many cells")
    chosen = parser.parse_args(arguments)
    program = compiled_program(chosen.lanes)
    files = CompiledFiles(program.json, program.p4info)
    with serve(Chassis(), "127.0.0.1:0", device_id=DEVICE) as server:
        session = P4RuntimeSession(server.address, DEVICE, 1, DEADLINE_S)
        try:
            P4RuntimeWriter(session, files).set_pipeline()
            request = p4runtime_pb2.ReadRequest(device_id=DEVICE)
            request.entities.add().register_entry.SetInParent()  # all cells of all registers
            cells, first_s = 0, 0.0
            load, began = os.getloadavg()[0], time.perf_counter()
            for response in session.stub.Read(request, timeout=DEADLINE_S):
                first_s = first_s or time.perf_counter() - began
                cells += len(response.entities)
                if cells >= chosen.most:
                    break
            seconds = time.perf_counter() - began
        finally:
            session.tear_down()
    print(machine_and_date())
    print(
        f"load before: {load:.1f}; protobuf {google.protobuf.__version__} ({api_implementation.Type()}), {chosen.lanes} lanes"
    )
    print(
        f"{cells:,} cells in {seconds:.2f} s: {cells / seconds:,.0f} cells/s, the first {1e3 * first_s:.0f} ms after the request"
    )


if __name__ == "__main__":
    main()
