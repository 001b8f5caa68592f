"""The programs of a network's switches: the addresses of their memory, and their calls to Python."""

from collections.abc import Sequence
from typing import Any

from sim.network.engine.packets import release
from sim.network.engine.switches import send_output
from sim.network.network_memory import NetworkMemory, RecordRows, address_of
from sim.network.programming import ProgrammedSwitch
from sim.switch.control_plane import ControlPlane


class NetworkPrograms:
    """Gives compiled code the addresses of the switches' programs."""

    def __init__(
        self, memory: NetworkMemory, rows: RecordRows, programmed: Sequence[ProgrammedSwitch | None]
    ) -> None:
        self._memory = memory
        self._rows = rows
        self._programmed = programmed
        self._versions: dict[int, int] = {}
        self._changes = -1

    def refresh(self) -> None:
        """Apply changes of the control plane, and update the addresses of the programs' memory."""
        if ControlPlane.changes == self._changes:
            return
        self._changes = ControlPlane.changes
        for number, programmed in enumerate(self._programmed):
            if programmed is not None and programmed.engine.version != self._versions.get(number):
                with programmed.engine.in_flight(self._memory.frames[:64]) as flight:
                    self._point_at(number, flight)
                self._versions[number] = programmed.engine.version

    def finish(self, number: int) -> None:
        """Give a program the memory that it needs, resume it, and send its packets."""
        programmed = self._programmed[number]
        assert programmed is not None
        switch = self._rows[number]
        with programmed.engine.in_flight(self._memory.frames[:1]) as flight:
            flight.resume(int(self._memory.world["switch_status"][0]))
            self._point_at(number, flight)
        send_output(self._memory.world[0], number)
        release(self._memory.world[0], int(switch["pending"]) - 1)
        switch["pending"] = 0

    def _point_at(self, number: int, flight: Any) -> None:
        switch, at = self._rows[number], flight.at
        values = {
            "code": flight.machine.address,
            "words": address_of(flight.words),
            "inputs": at["in_frames"],
            "out_count": at["out_count"],
            "now_us": at["now_us"],
            "digest_count": at["digest_count"],
            "ports": address_of(flight.out_ports),
            "lengths": address_of(flight.out_lengths),
            "frames": address_of(flight.out_frames),
            "stride": flight.out_frames.shape[1],
        }
        for name, value in values.items():
            switch[name] = value
