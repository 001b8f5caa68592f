"""The connection to one switch: it connects, reconnects, stands by, and carries out one request at a time.

The P4Runtime session blocks, so it has a thread of its own; everything else runs in the event loop's thread. Requests are
carried out in order. After a broken connection, no request is carried out before the switch has been reconciled, so that no job
is admitted while the switch still holds entries of an ended job.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from controller.errors import ControllerError, NotPrimaryError, SwitchUnreachableError
from controller.p4runtime_writer import P4RuntimeWriter
from controller.program import CompiledFiles
from controller.service.events import EventLog, Subject
from controller.service.from_threads import call_in
from controller.service.network import SwitchSite
from controller.service.states import LINK_TRANSITIONS, LinkEvent, LinkState
from controller.session import P4RuntimeSession
from controller.switch_tables import Reconciled, SwitchTables

FIRST_BACKOFF_S = 0.2
LAST_BACKOFF_S = 5.0
REQUEST_TIMEOUT_S = 5.0

Result = TypeVar("Result")
Taken = TypeVar("Taken")


def opened(
    site: SwitchSite, files: CompiledFiles, election_id: int, on_change: Callable[[], None]
) -> P4RuntimeWriter:
    """Open a session with a switch, and return its writer; raise the errors of `P4RuntimeSession`."""
    return P4RuntimeWriter(
        P4RuntimeSession(site.p4runtime, site.device_id, election_id, REQUEST_TIMEOUT_S, site.tls, on_change),
        files,
    )


class SwitchLink:
    """The link to one switch.

    `election_id`: the controller with the highest election id is primary. `bring_up`: reconciles the switch; called at the
    beginning of each session, before any request. `events`: the log of the link's transitions, which records repeated failures
    for the same reason once. `open_writer`: opens a session, as `opened` does.
    """

    def __init__(
        self,
        site: SwitchSite,
        files: CompiledFiles,
        election_id: int,
        bring_up: Callable[["SwitchLink"], Awaitable[None]],
        events: EventLog,
        open_writer: Callable[..., P4RuntimeWriter] = opened,
    ) -> None:
        self.site = site
        self.files = files
        self.state = LinkState.CONNECTING
        self.reason = "not connected yet"
        self._connected = 0
        self.restarts = 0
        self.reconciled: tuple[float, Reconciled] | None = None
        self._election_id = election_id
        self._bring_up = bring_up
        self._events = events
        self._open_writer = open_writer
        self._writer: P4RuntimeWriter | None = None
        self._tables: SwitchTables | None = None
        self._order = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"switch {site.name}")
        self.changed = asyncio.Condition()
        self._session_changed = asyncio.Event()

    @property
    def reconnects(self) -> int:
        """The number of sessions after the first."""
        return max(0, self._connected - 1)

    async def call(self, request: Callable[[SwitchTables], Result]) -> Result:
        """Carry out a request on the switch, after all earlier ones.

        Raises SwitchUnreachableError if there is no session, or it broke. Raises ControllerError if the switch refused.
        """
        async with self._order:
            if self.state is not LinkState.READY:
                raise SwitchUnreachableError(f"switch {self.site.name} is not ready: {self.reason}")
            return await self.do(request)

    async def read(self, request: Callable[[SwitchTables], Result]) -> Result:
        """Carry out a request for a view; fail at once while the link is not ready.

        Raises SwitchUnreachableError, ControllerError: as `call`.
        """
        if self.state is not LinkState.READY:
            raise SwitchUnreachableError(f"switch {self.site.name} is not ready: {self.reason}")
        return await self.call(request)

    async def do(self, request: Callable[[SwitchTables], Result]) -> Result:
        """Carry out a request during `bring_up`, which alone may call this."""
        return await self._request(request, self._tables)

    async def cookie(self) -> int:
        """Return the cookie of the switch's program during `bring_up`; 0 if it has none."""
        return await self._request(lambda writer: writer.cookie(), self._writer)

    async def set_pipeline(self, cookie: int) -> None:
        """Give the switch its program during `bring_up`."""
        await self._request(lambda writer: writer.set_pipeline(cookie), self._writer)

    async def _request(self, request: Callable[[Taken], Result], taken: Taken | None) -> Result:
        if taken is None:
            raise SwitchUnreachableError(f"switch {self.site.name} is not ready: {self.reason}")
        try:
            return await self._in_thread(request, taken)
        except (SwitchUnreachableError, NotPrimaryError) as error:
            await self.lose(error)
            raise

    async def run(self) -> None:
        """Keep the link up until cancelled."""
        backoff_s = FIRST_BACKOFF_S
        try:
            while True:
                try:
                    await self._connect()
                    backoff_s = FIRST_BACKOFF_S
                    await self._watch()
                    continue
                except ControllerError as error:
                    await self.lose(error)
                await asyncio.sleep(backoff_s)
                backoff_s = min(2 * backoff_s, LAST_BACKOFF_S)
        finally:
            await self._tear_down()
            self._thread.shutdown(wait=False)

    async def _connect(self) -> None:
        on_change = partial(call_in, asyncio.get_running_loop(), self._session_changed.set)
        async with self._order:
            self._writer = await self._in_thread(
                self._open_writer, self.site, self.files, self._election_id, on_change
            )
            self._tables = SwitchTables(self._writer, self.files.target)
            await self._bring_up(self)
            await self._on(LinkEvent.RECONCILED)
        self._connected += 1

    async def _watch(self) -> None:
        """Return when the session has ended, or another controller has become primary."""
        while (writer := self._writer) is not None:
            self._session_changed.clear()
            if writer.session.lost:
                await self.lose(
                    SwitchUnreachableError(f"the connection to the switch at {self.site.p4runtime} was lost")
                )
            elif not writer.session.primary:
                await self.lose(
                    NotPrimaryError(f"another controller became primary at {self.site.p4runtime}")
                )
            else:
                await self._session_changed.wait()

    async def lose(self, error: ControllerError) -> None:
        """End a session that broke, or whose switch is in an unknown state after a refusal; the next session reconciles it."""
        superseded = isinstance(error, NotPrimaryError)
        await self._on(LinkEvent.SUPERSEDED if superseded else LinkEvent.LOST, str(error))
        await self._tear_down()

    async def _tear_down(self) -> None:
        writer, self._writer, self._tables = self._writer, None, None
        self._session_changed.set()
        if writer is not None:
            with contextlib.suppress(ControllerError):
                await self._in_thread(writer.session.tear_down)

    async def _on(self, event: LinkEvent, reason: str = "") -> None:
        subject = Subject("", switch=self.site.name)
        self.state = self._events.on(subject, LINK_TRANSITIONS, self.state, event, reason, self.reason)
        self.reason = reason
        async with self.changed:
            self.changed.notify_all()

    async def _in_thread(self, function: Callable[..., Result], *arguments: object) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)
