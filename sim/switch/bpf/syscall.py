"""The system call bpf(2): maps, programs, links, test runs.

The plain call, not libbpf: nine commands of a few words each are needed. libbpf would add a shared library
whose version differs between distributions, for its reading of objects that a C compiler made, with type information that
LLVM does not write for this compiler's code.
"""

import ctypes
import errno
import mmap
import os
import platform
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from netsum_common.errors import NetsumError

HASH, ARRAY, PROG_ARRAY, PERCPU_ARRAY, LPM_TRIE, ARRAY_OF_MAPS, DEVMAP, RINGBUF = 1, 2, 3, 6, 11, 12, 14, 27
_MAP_CREATE, _LOOKUP, _UPDATE, _DELETE, _NEXT_KEY, _PROG_LOAD = range(6)
_OBJ_PIN, _OBJ_GET, _TEST_RUN, _BTF_LOAD, _LINK_CREATE, _LINK_UPDATE = 6, 7, 10, 18, 28, 29
_PROG_TYPE_XDP = 6
_ATTACH_DEVMAP, _ATTACH_XDP = 33, 37
_NO_PREALLOC, _MMAPABLE = 1, 1 << 10
_LIVE_FRAMES = 1 << 1
GENERIC_MODE, NATIVE_MODE = 1 << 1, 1 << 2
_NUMBERS = {"x86_64": 321, "aarch64": 280}
_LOG_BYTES = 1 << 24
_LIBC = ctypes.CDLL(None, use_errno=True)


class BpfError(NetsumError, OSError):
    """The kernel refuses a map or a program; the message is one sentence for the user."""


class VerifierError(BpfError):
    """The kernel's verifier refuses a program."""

    def __init__(self, message: str, log: str) -> None:
        super().__init__(message)
        self.log = log


def _bpf(command: int, attributes: bytes | ctypes.Array[ctypes.c_char], what: str) -> int:
    number = _NUMBERS.get(platform.machine())
    if number is None:
        raise BpfError(f"BPF is used on x86_64 and aarch64, not on {platform.machine()}")
    buffer = ctypes.create_string_buffer(attributes, 128) if isinstance(attributes, bytes) else attributes
    for _ in range(8):
        result = int(_LIBC.syscall(number, command, buffer, 128))
        if result >= 0:
            return result
        code = ctypes.get_errno()
        if code != errno.EAGAIN:  # a program is verified again when a signal comes
            break
    if code == errno.EPERM:
        raise BpfError(f"cannot {what}: BPF needs the capabilities CAP_BPF and CAP_NET_ADMIN, or root")
    raise BpfError(code, f"cannot {what}: {os.strerror(code)}")


def map_name(name: str) -> bytes:
    """Return a name as the kernel takes it: 15 letters, digits, dots or underscores."""
    cleaned = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)
    return f"ns_{cleaned}"[:15].encode()


class Map:
    """A BPF map; closing it frees it once no program uses it.

    `name`: what `bpftool` shows, after ``ns_``. `kind`, `key_bytes`, `value_bytes`, `entries`: as bpf(2) has them. `shared`:
    whether `view` may map it into this process (arrays). `sparse`: whether memory is taken as entries come (tries must).
    `inner`: a map of the kind that a map of maps holds. `btf`: descriptor and numbers of the key's and the value's type,
    where the kernel must know them. `pinned`: where an earlier process has pinned the map, which is taken over; None: it is
    made.
    """

    def __init__(
        self,
        name: str,
        kind: int,
        key_bytes: int,
        value_bytes: int,
        entries: int,
        *,
        shared: bool = False,
        sparse: bool = False,
        inner: "Map | None" = None,
        btf: tuple[int, int, int] = (0, 0, 0),
        pinned: Path | None = None,
    ) -> None:
        self.name, self.entries = name, entries
        self.key_bytes, self.value_bytes = key_bytes, value_bytes
        flags = (_MMAPABLE if shared else 0) | (_NO_PREALLOC if sparse or kind == LPM_TRIE else 0)
        attributes = struct.pack(
            "=7I16s4I", kind, key_bytes, value_bytes, entries, flags, inner.fd if inner else 0, 0,
            map_name(name), 0, *btf,
        )  # fmt: skip
        self.fd: int = (
            pinned_object(pinned) if pinned else _bpf(_MAP_CREATE, attributes, f"make the BPF map {name}")
        )

    def close(self) -> None:
        """Let go of the map."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def view(self, size: int) -> mmap.mmap:
        """Map the values into this process."""
        return shared_view(self.fd, size)

    def _element(self, command: int, key: bytes, value: ctypes.Array[ctypes.c_char] | None) -> None:
        name = ctypes.create_string_buffer(key, max(self.key_bytes, 1))
        place = ctypes.addressof(value) if value is not None else 0
        attributes = struct.pack("=IIQQQ", self.fd, 0, ctypes.addressof(name), place, 0)
        _bpf(command, attributes, f"reach an entry of the BPF map {self.name}")

    def update(self, key: bytes, value: bytes) -> None:
        """Add or replace an entry."""
        try:
            self._element(_UPDATE, key, ctypes.create_string_buffer(value, self.value_bytes))
        except BpfError as error:
            if error.errno in (errno.E2BIG, errno.ENOMEM, errno.ENOSPC):
                full = f"the BPF map {self.name} is full: it holds {self.entries} entries"
                raise BpfError(error.errno, full) from None
            raise

    def lookup(self, key: bytes, size: int | None = None) -> bytes | None:
        """Return an entry's value, of `size` bytes where it has a part for each processor; None if there is none."""
        value = ctypes.create_string_buffer(size or self.value_bytes)
        try:
            self._element(_LOOKUP, key, value)
        except BpfError as error:
            if error.errno == errno.ENOENT:
                return None
            raise
        return value.raw

    def delete(self, key: bytes) -> None:
        """Remove an entry, if it is there."""
        try:
            self._element(_DELETE, key, None)
        except BpfError as error:
            if error.errno != errno.ENOENT:
                raise

    def keys(self) -> Iterator[bytes]:
        """Go through the keys."""
        before: bytes | None = None
        while True:
            start = ctypes.create_string_buffer(before or b"", self.key_bytes)
            following = ctypes.create_string_buffer(self.key_bytes)
            place = ctypes.addressof(start) if before is not None else 0
            attributes = struct.pack("=IIQQQ", self.fd, 0, place, ctypes.addressof(following), 0)
            try:
                _bpf(_NEXT_KEY, attributes, f"list the BPF map {self.name}")
            except BpfError as error:
                if error.errno == errno.ENOENT:
                    return
                raise
            before = following.raw
            yield before


def pin(descriptor: int, path: Path) -> None:
    """Keep a map or a link in a file of a BPF filesystem: it stays when this process has ended, until the file is removed."""
    name = ctypes.create_string_buffer(os.fsencode(path))
    _bpf(_OBJ_PIN, struct.pack("=QII", ctypes.addressof(name), descriptor, 0), f"pin to {path}")


def pinned_object(path: Path) -> int:
    """Return a descriptor of the object in a file of a BPF filesystem."""
    name = ctypes.create_string_buffer(os.fsencode(path))
    return _bpf(_OBJ_GET, struct.pack("=QII", ctypes.addressof(name), 0, 0), f"take over {path}")


def shared_view(descriptor: int, size: int) -> mmap.mmap:
    """Map an array's values into this process."""
    return mmap.mmap(descriptor, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)


def load_btf(content: bytes) -> int:
    """Load type information; return its descriptor."""
    data, log = ctypes.create_string_buffer(content, len(content)), ctypes.create_string_buffer(1 << 16)
    attributes = struct.pack(
        "=QQIII", ctypes.addressof(data), ctypes.addressof(log), len(content), len(log), 1
    )
    try:
        return _bpf(_BTF_LOAD, attributes, "load type information (BTF)")
    except BpfError as error:
        if error.errno is None:
            raise
        raise BpfError(
            "the kernel takes no type information (BTF) of BPF programs: Linux 6.6 or newer is needed"
        ) from None


def load_program(name: str, code: bytes, *, devmap: bool = False) -> int:
    """Load an XDP program; return its descriptor.

    `devmap`: whether it runs at an entry of a device map, not at an interface. Raises VerifierError if the verifier refuses
    it. Raises BpfError if the kernel does.
    """
    instructions, license_text = ctypes.create_string_buffer(code, len(code)), ctypes.c_char_p(b"GPL")
    attach = _ATTACH_DEVMAP if devmap else 0

    def attempt(log: ctypes.Array[ctypes.c_char] | None) -> int:
        attributes = struct.pack(
            "=IIQQIIQII16sII", _PROG_TYPE_XDP, len(code) // 8, ctypes.addressof(instructions),
            ctypes.cast(license_text, ctypes.c_void_p).value, 1 if log else 0, len(log) if log else 0,
            ctypes.addressof(log) if log else 0, 0, 0, map_name(name), 0, attach,
        )  # fmt: skip
        return _bpf(_PROG_LOAD, attributes, f"load the BPF program {name}")

    try:
        return attempt(None)
    except BpfError as first:
        if first.errno not in (errno.EACCES, errno.EINVAL, errno.E2BIG, errno.EFAULT):
            raise
        log = ctypes.create_string_buffer(_LOG_BYTES)
        try:
            return attempt(log)
        except BpfError as error:
            text = log.value.decode(errors="replace")
            last = [line for line in text.splitlines() if line and not line.startswith("processed ")]
            said = last[-1] if last else str(error)
            message = f"the kernel's verifier refuses the BPF program {name}: {said}"
            raise VerifierError(message, text) from None


@dataclass(frozen=True)
class RunResult:
    """Result of a test run: the program's return value, the packet afterwards, nanoseconds a run took on average."""

    action: int
    packet: bytes
    duration_ns: int


_OUT = ctypes.create_string_buffer(1 << 14)


def run_once(
    program: int, packet: bytes, repeat: int = 1, *, live: bool = False, ifindex: int = 0, batch: int = 1
) -> RunResult:
    """Run a program on a packet in memory.

    `live`: whether the packet really goes where the program sends it. `ifindex`: the interface that a live packet seems to
    come from. `batch`: how many live packets are sent at once.
    """
    data = ctypes.create_string_buffer(packet, len(packet))
    context = b""
    if live:
        context = struct.pack("=6I", 0, len(packet), 0, ifindex, 0, 0)
    held = ctypes.create_string_buffer(context, max(len(context), 1))
    attributes = ctypes.create_string_buffer(
        struct.pack(
            "=IIIIQQIIIIQQIII", program, 0, len(packet), 0 if live else len(_OUT), ctypes.addressof(data),
            0 if live else ctypes.addressof(_OUT), repeat, 0, len(context), 0,
            ctypes.addressof(held) if context else 0, 0, _LIVE_FRAMES if live else 0, 0, batch if live else 0,
        ),
        128,
    )  # fmt: skip
    _bpf(_TEST_RUN, attributes, "run a BPF program on a packet")
    action, _, size = struct.unpack_from("=III", attributes.raw, 4)
    (duration,) = struct.unpack_from("=I", attributes.raw, 36)
    return RunResult(action, b"" if live else _OUT.raw[:size], duration)


def attach_xdp(program: int, ifindex: int, mode: int) -> int:
    """Attach a program to an interface; return the descriptor of the link, whose closing detaches it."""
    attributes = struct.pack("=IIII", program, ifindex, _ATTACH_XDP, mode)
    return _bpf(_LINK_CREATE, attributes, "attach the BPF program")


def update_link(link: int, program: int) -> None:
    """Put another program in the place of an attached one; no packet passes in between."""
    _bpf(_LINK_UPDATE, struct.pack("=IIII", link, program, 0, 0), "replace a BPF program")
