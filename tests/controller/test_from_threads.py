"""Threads that outlast the event loop: that of a switch's session, and those that read the registry."""

import asyncio
import gc
import threading
from pathlib import Path

import pytest

from controller.program import CompiledFiles
from controller.service.events import EventLog
from controller.service.from_threads import result_in
from controller.service.link import SwitchLink
from controller.service.network import SwitchSite
from host_agent.wire.constants import UDP_PORT
from netsum.programs import compiled_program
from topologies.loopback import LoopbackTestbed


def test_the_end_of_a_switch_after_that_of_the_loop_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", faults.append)
    program = compiled_program(64)

    async def bring_up(link: SwitchLink) -> None:
        del link

    async def connect(address: str) -> None:
        site = SwitchSite("s1", address, 1, "127.0.0.1", "02:00:00:00:00:01", {})
        await SwitchLink(
            site, CompiledFiles(program.json, program.p4info), 1, bring_up, EventLog()
        )._connect()

    with LoopbackTestbed(1, UDP_PORT, tmp_path) as bed:
        asyncio.run(connect(bed.p4runtime_address))
        (receiver,) = [each for each in threading.enumerate() if each.name.startswith("p4runtime ")]
    receiver.join(20.0)
    assert not receiver.is_alive()
    assert not faults


@pytest.mark.filterwarnings("error")
def test_a_request_after_the_end_of_the_loop_leaves_no_coroutine_behind() -> None:
    async def never() -> None:
        raise AssertionError

    loop = asyncio.new_event_loop()
    loop.close()
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        asyncio.run(result_in(loop, never()))
    gc.collect()
