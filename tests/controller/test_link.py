"""The link to a switch that does not answer: it waits longer each time, and begins anew after a session."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from controller.errors import SwitchUnreachableError
from controller.program import CompiledFiles
from controller.service.events import EventLog
from controller.service.link import FIRST_BACKOFF_S, LAST_BACKOFF_S, SwitchLink
from controller.service.network import SwitchSite
from tests.controller.harness_switches import PROGRAM


def test_attempts_to_connect_are_twice_as_far_apart_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    attempts: list[str] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 10:
            raise asyncio.CancelledError

    def opened(*_: Any) -> Any:
        attempts.append("")
        if len(attempts) == 8:  # A session that breaks at once.
            return SimpleNamespace(tables=(), session=SimpleNamespace(lost=True, tear_down=lambda: None))
        raise SwitchUnreachableError("no P4Runtime server answers at nowhere:1")

    async def bring_up(link: SwitchLink) -> None:
        del link

    async def run() -> None:
        site = SwitchSite("s1", "nowhere:1", 1, "127.0.0.1", "02:00:00:00:00:01", {})
        files = CompiledFiles(PROGRAM.json, PROGRAM.p4info)
        link = SwitchLink(site, files, 1, bring_up, EventLog(), opened)
        monkeypatch.setattr(asyncio, "sleep", sleep)
        with pytest.raises(asyncio.CancelledError):
            await link.run()

    asyncio.run(run())
    doubled = [FIRST_BACKOFF_S * 2**n for n in range(5)]
    assert waits == pytest.approx([*doubled, LAST_BACKOFF_S, LAST_BACKOFF_S, *doubled[:3]])
