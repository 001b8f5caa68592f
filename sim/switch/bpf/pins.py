"""The parts of a kernel switch that outlive its process, in a folder of a BPF filesystem: maps, links, controllers' writes.

The last is a log in a map of its own: which code the maps belong to, the configuration, and every update since. It is in place
before an update is acknowledged, so the next process knows all that the maps hold. Two halves take turns: a half is written whole
before it counts.
"""

import errno
import fcntl
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from netsum_common.closing import Closing
from sim.switch.bpf import syscall
from sim.switch.bpf.loading import Kernel
from sim.switch.ports.driver import PortUnavailableError

_HALF_BYTES = 1 << 22
_WHICH = (
    1 << 63
)  # In the log's first word: whether the second half counts; the rest is how much of it is written.


class Pins(Closing):
    """The folder of one switch; a context manager that lets another process have it.

    Raises PortUnavailableError if it is in no BPF filesystem, or another process has it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._resources = ExitStack()
        self._kernel: Kernel | None = None
        self._log: Any = None
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            self._resources.callback(os.close, held)
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not (folder / "log").exists():
                self._new_log()
            else:
                self._open_log(syscall.pinned_object(folder / "log"))
        except OSError as error:
            self.close()
            if error.errno == errno.EWOULDBLOCK:
                why = f"another process has the switch that is pinned at {folder}: stop that one, or pin this one elsewhere"
            else:
                why = f"cannot pin a switch at {folder} ({os.strerror(error.errno or 0)}): expected a new folder of a BPF "
                why += "filesystem, which `mount -t bpf bpf /sys/fs/bpf` makes"
            raise PortUnavailableError(why) from None

    def close(self) -> None:
        """Let another process have the folder; pinned objects stay."""
        self._resources.close()

    def _new_log(self) -> None:
        made = syscall.Map("log", syscall.ARRAY, 4, 8 + 2 * _HALF_BYTES, 1, shared=True)
        syscall.pin(made.fd, self.folder / "log")
        self._open_log(made.fd)

    def _open_log(self, descriptor: int) -> None:
        self._resources.callback(os.close, descriptor)
        mapped = syscall.shared_view(descriptor, 8 + 2 * _HALF_BYTES)
        self._log = np.frombuffer(mapped, np.uint8)
        self._word = self._log[:8].view(np.uint64)

    # The log.

    def records(self) -> list[bytes]:
        """Return the contents of the log: the identity of the code, the configuration, updates; empty if nothing is pinned."""
        return list(self._read())

    def _read(self) -> Iterator[bytes]:
        word = int(self._word[0])
        at = 8 + (_HALF_BYTES if word & _WHICH else 0)
        end = at + (word & ~_WHICH)
        while at < end:
            (size,) = struct.unpack("=I", self._log[at : at + 4].tobytes())
            yield self._log[at + 4 : at + 4 + size].tobytes()
            at += 4 + size

    def renew(self, config: Any, updates: Sequence[Any]) -> None:
        """Write the log anew, and pin the maps that it is of if they are not pinned yet."""
        assert self._kernel is not None
        if not self._kernel.pinned:
            self._word[0] = 0  # Nothing is taken over while pins are of two programs.
            self.clear(("map",))
            self._kernel.pin(self.folder)
        half = 0 if int(self._word[0]) & _WHICH else _WHICH
        content = b"".join(
            struct.pack("=I", len(each)) + each
            for each in (
                self._kernel.identity,
                zlib.compress(config.SerializeToString()),
                *(update.SerializeToString() for update in updates),
            )
        )
        if len(content) > _HALF_BYTES:
            raise syscall.BpfError(
                errno.ENOSPC, f"the log at {self.folder} is full: it holds {_HALF_BYTES} bytes"
            )
        at = 8 + (_HALF_BYTES if half else 0)
        self._log[at : at + len(content)] = np.frombuffer(content, np.uint8)
        self._word[0] = half | len(content)

    def append(self, updates: Sequence[Any]) -> bool:
        """Add updates to the log; return whether there was room."""
        content = b"".join(
            struct.pack("=I", len(each)) + each for each in (update.SerializeToString() for update in updates)
        )
        word = int(self._word[0])
        at = word & ~_WHICH
        if at + len(content) > _HALF_BYTES:
            return False
        start = 8 + (_HALF_BYTES if word & _WHICH else 0) + at
        self._log[start : start + len(content)] = np.frombuffer(content, np.uint8)
        self._word[0] = word + len(content)
        return True

    # Maps and links.

    def keep(self, kernel: Kernel) -> None:
        """Have the next `renew` pin a switch's maps."""
        self._kernel = kernel

    def clear(self, kinds: tuple[str, ...] = ("map", "link")) -> None:
        """Remove pins; what nothing else holds goes."""
        for path in self.folder.iterdir():
            if path.name.startswith(kinds):
                path.unlink()

    def links(self) -> dict[tuple[int, int], tuple[str, Path]]:
        """Return the mode and the file of each link that is pinned, by switch port and interface."""
        found = {}
        for path in self.folder.glob("link-*"):
            _, port, index, mode = path.name.split("-")
            found[int(port), int(index)] = mode, path
        return found

    def pin_link(self, descriptor: int, port: int, index: int, mode: str) -> None:
        """Pin the link of a switch port at an interface."""
        syscall.pin(descriptor, self.folder / f"link-{port}-{index}-{mode}")
