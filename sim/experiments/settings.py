"""The format of an experiment's file: each table a class, each key a field with its reader and its expected values."""

import contextlib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Final, TypeVar

from host_agent.wire.constants import MAX_CHILDREN, MAX_JOB_ID, MAX_WORLD_SIZE, POOL_SLOTS
from netsum_common.lane_counts import LINK_LANES, SOFTWARE_LANES
from sim.network.engine.engine_records import CONTROLS, GAPS
from sim.peers.table import PEERS
from topologies.fields import Fields, flag_field, integer_field, text_field
from topologies.generated import KINDS, MAX_FAT_TREE_PORTS, MAX_HOSTS
from topologies.topology import MAX_PORT
from topologies.units import parse_latency_ns, parse_rate_bps, parse_size_bytes

ACTIONS: Final = (
    "link-down",
    "link-up",
    "switch-down",
    "switch-up",
    "switch-restart",
    "controller-away",
    "controller-back",
    "kill-worker",
    "pause-worker",
    "resume-worker",
)
MAX_RUN_S: Final = 1_000_000
_Old = tuple[str, Mapping[str, object]]


_RANDOM: Final[_Old] = ("random", {"True": "uniform", "False": "even"})


def _whole(low: int, high: int) -> Callable[[object], int]:
    return lambda found: integer_field(found, low, high, f"a whole number from {low:,} to {high:,}")


def _power_of_two(found: object) -> int:
    expected = f"a power of two from 1 to {POOL_SLOTS:,}"
    number = integer_field(found, 1, POOL_SLOTS, expected)
    if number & (number - 1):
        raise ValueError(expected)
    return number


def _is_number(found: object, low: float, high: float) -> bool:
    return isinstance(found, (int, float)) and not isinstance(found, bool) and low <= found <= high


def _number(low: float, high: float) -> Callable[[object], float]:
    def read(found: Any) -> float:
        if not _is_number(found, low, high):
            raise ValueError(f"a number from {low:g} to {high:g}")
        return float(found)

    return read


def _choice(*choices: Any) -> Callable[[object], Any]:
    def read(found: object) -> Any:
        if found not in choices or isinstance(found, bool) != isinstance(choices[0], bool):
            raise ValueError("one of " + ", ".join(map(str, choices)))
        return found

    return read


def _time_ns(found: object) -> int:
    if found == 0 and not isinstance(found, bool):
        return 0
    if not isinstance(found, str):
        raise ValueError('a time with a unit ("5us", "1.5ms")')
    return parse_latency_ns(found)


def _long_time_ns(found: object) -> int:
    """Read a time that may be longer than any latency, such as a whole run's."""
    if isinstance(found, str) and found.strip().endswith("s"):
        number = found.strip()[:-1]
        if number.replace(".", "", 1).isdigit() and 0 < float(number) <= MAX_RUN_S:
            return round(float(number) * 1e9)
    try:
        return _time_ns(found)
    except ValueError:
        raise ValueError(f'a time with a unit ("1.5ms", "10s"), at most {MAX_RUN_S:,} s') from None


def _small_time_ns(found: Any) -> float:
    """Read a time that may be a part of a nanosecond, given as a number of ns or with a unit."""
    if _is_number(found, 0, 1e9):
        return float(found)
    if isinstance(found, str):
        return float(_time_ns(found))
    raise ValueError('a time with a unit ("1.5us"), or a number of ns')


def _rate_bps(found: object) -> int:
    if not isinstance(found, str):
        raise ValueError('a rate with a unit ("10gbit", "100mbit")')
    return parse_rate_bps(found)


def _share(found: Any) -> float:
    """Read a probability: a number from 0 to 1, or a text in percent."""
    value = found
    if isinstance(found, str) and found.strip().endswith("%"):
        with contextlib.suppress(ValueError):
            value = float(found.strip()[:-1]) / 100
    if not _is_number(value, 0, 1):
        raise ValueError('a share from 0 to 1, or in percent ("0.1%") from 0 % to 100 %')
    return float(value)


def size_bytes(found: object) -> int:
    """Read a size: a number of bytes, or a text with a unit."""
    if isinstance(found, float):
        raise ValueError("a whole number of bytes, or a size with a unit")
    return parse_size_bytes(found)


def _key(read: Callable[[object], Any], default: Any = MISSING, note: str = "", was: _Old = ("", {})) -> Any:
    """Return a field; `was` is its name in earlier versions, and the values now of those then, as `repr` writes them."""
    return field(default=default, metadata={"read": read, "note": note, "was": was})


@dataclass(frozen=True)
class TopologyTable:
    """``[topology]``: hosts, switches and links."""

    kind: str = _key(_choice(*KINDS, "file"), "star", "which graph")
    file: str = _key(text_field, "", "for kind file: a shipped topology's name or a path")
    hosts: int = _key(_whole(0, MAX_HOSTS), 0, "0: as many as jobs and background need")
    leaves: int = _key(_whole(1, 256), 4, "in all, or of a pod")
    spines: int = _key(_whole(1, 256), 2, "likewise")
    rack: int = _key(
        _whole(0, 256), 0, "hosts at a leaf, and as many leaves as those need; 0: `leaves` leaves"
    )
    pods: int = _key(_whole(0, MAX_PORT), 0, "0: as many as the hosts need")
    cores: int = _key(_whole(1, 256), 1, "core switches above each spine of a pod")
    ports: int = _key(_whole(2, MAX_FAT_TREE_PORTS), 4, "of a fat tree's switches")
    rate: int = _key(_rate_bps, 10**10, "of the hosts' links")
    core_rate: int = _key(_rate_bps, 0, "between switches; default: the same")
    latency: int = _key(_time_ns, 1000, "of each link")
    queue: int = _key(size_bytes, 0, "bytes that may wait before a link; default: any number")
    mark: int = _key(size_bytes, 0, "bytes from which on packets are marked (ECN); default: never")
    mtu: int = _key(_whole(68, 65535), 1500)
    framing: int = _key(_whole(0, 1000), 24, "bytes a packet takes on the wire beside its frame")


@dataclass(frozen=True)
class SwitchTable:
    """``[switch]``: how long all switches take."""

    latency: float = _key(_small_time_ns, 0.0, "from the last bit in to the queue of the port out")
    service: float = _key(_small_time_ns, 0.0, "how long one packet keeps the whole switch busy")
    queue_pkts: int = _key(_whole(0, 10**9), 0, "packets that may wait for that; 0: any number")


@dataclass(frozen=True)
class ControllerTable:
    """``[controller]``: of all switches that add."""

    delay: int = _key(_time_ns, 0, "from a job's or a switch's start until its entries are in the switch")


@dataclass(frozen=True)
class HostTable:
    """``[host]``: what hosts' processors spend."""

    cost: str = _key(
        _choice("ideal", "measured", "given"), "ideal", "measured: as on the machine in docs/simulator.md"
    )
    send: float = _key(_small_time_ns, 0.0, "for each packet, if given")
    receive: float = _key(_small_time_ns, 0.0, "for each packet, if given")
    byte: float = _key(_small_time_ns, 0.0, "for each byte, if given")


@dataclass(frozen=True)
class JobTable:
    """``[[job]]``: workers that reduce arrays."""

    name: str = _key(text_field, "job")
    contender: str = _key(_choice("netsum", *PEERS), "netsum", "what reduces")
    workers: int = _key(_whole(1, MAX_WORLD_SIZE), 4)
    copies: int = _key(_whole(1, MAX_JOB_ID), 1, "number of such jobs, named NAME1, NAME2, ...")
    apart: bool = _key(flag_field, False, "copies have hosts of their own, not the same ones")
    first_host: int = _key(_whole(1, MAX_HOSTS), 1, "workers are on this host and those that follow")
    size: int = _key(size_bytes, 1 << 20, "of each worker's array, of float32")
    collectives: int = _key(_whole(1, 10_000), 1, "all-reduces, or runs of a workload, one after the other")
    model: str = _key(text_field, "", "train this model instead: a shipped one's name or a file")
    workload: str = _key(
        text_field, "", "run this trace instead: a file, a folder, or NAME.%d.et; see docs/simulator.md"
    )
    compute: int = _key(_time_ns, 0, "before each all-reduce, without a model")
    batch: float = _key(_number(0.001, 1000), 1.0, "factor on computing times of a model or workload")
    bucket: int = _key(size_bytes, 25 << 20, "bytes of a bucket of gradients, as DDP's bucket_cap_mb")
    lanes: int = _key(_choice(*SOFTWARE_LANES), LINK_LANES[-1])
    simulated_lanes: int = _key(_choice(0, *SOFTWARE_LANES), 0, "lanes that are computed; default: all")
    slots: int = _key(_power_of_two, 64)
    sparse: str = _key(
        _choice("auto", "always", "never"), "auto", "whether blocks of zeros are looked for and left out"
    )
    switch: str = _key(text_field, "", "that adds; default: the topology's")
    tree: bool = _key(flag_field, False, "each switch adds for those below it")
    quorum: int = _key(
        _whole(0, MAX_CHILDREN),
        0,
        "reduce the arrays of the first workers that are ready, this many; 0: of all",
    )
    start: int = _key(_long_time_ns, 0)
    straggler: int = _key(_whole(-1, MAX_WORLD_SIZE - 1), -1, "a worker that is slow or late; -1: none")
    slower: float = _key(_number(0.01, 1e6), 1.0, "how many times longer its host takes")
    late: int = _key(_time_ns, 0, "how much later it starts each collective")
    jitter: int = _key(_time_ns, 0, "largest delay of a worker before each collective; drawn at random")
    servers: int = _key(
        _whole(0, 4096), 0, "of ps (default: one) and omnireduce (default: as many as workers)"
    )
    density: float = _key(
        _share, 1.0, "share of blocks that are not zero, at random; netsum and omnireduce leave zeros out"
    )
    timeout: int = _key(_long_time_ns, 30 * 10**9)


@dataclass(frozen=True)
class FaultTable:
    """``[[fault]]``: what happens to packets on links."""

    links: str = _key(text_field, "*", "FROM>TO, with * for any")
    # None: 0, or the value that an earlier table sets for the link.
    loss: float | None = _key(_share, None)
    duplicate: float | None = _key(_share, None)
    jitter: int | None = _key(_time_ns, None)
    straggle: float | None = _key(_share, None)
    straggle_by: int = _key(_time_ns, 0)
    to_bad: float | None = _key(_share, None, "bursts: probability to turn bad, per packet")
    to_good: float = _key(_share, 1.0)
    loss_bad: float = _key(_share, 1.0)


@dataclass(frozen=True)
class ScriptTable:
    """``[[script]]``: the n-th packet of a kind."""

    links: str = _key(text_field, "*")
    kind: str = _key(_choice("any", "contribute", "result", "probe", "status"), "any")
    chunk: int = _key(_whole(-1, 2**32 - 1), -1)
    worker: int = _key(_whole(-1, MAX_WORLD_SIZE - 1), -1)
    nth: int = _key(_whole(1, 10**9), 1)
    action: str = _key(_choice("drop", "delay"), "drop")
    delay: int = _key(_time_ns, 0)


@dataclass(frozen=True)
class EventTable:
    """``[[event]]``: what happens at a time."""

    at: int = _key(_long_time_ns)
    action: str = _key(_choice(*ACTIONS))
    links: str = _key(text_field, "", "for link-down and link-up")
    switch: str = _key(text_field, "", "for switch-…; default: the topology's aggregator")
    job: str = _key(text_field, "", "for …-worker; default: the first")
    worker: int = _key(_whole(0, MAX_WORLD_SIZE - 1), 0)


@dataclass(frozen=True)
class BackgroundTable:
    """``[[background]]``: traffic from a host to another."""

    source: str = _key(text_field)
    target: str = _key(text_field)
    rate: int = _key(_rate_bps, 0, "0: what its flow's window allows")
    flow: str = _key(_choice(*CONTROLS[1:]), "", "the congestion control of a TCP flow")
    packet: int = _key(_whole(60, 65535), 1514, "bytes of a frame")
    burst: int = _key(_whole(1, 512), 1, "packets at once")
    gaps: str = _key(_choice(*GAPS), "even", "between bursts; uniform: from 0 to twice the mean", _RANDOM)
    start: int = _key(_long_time_ns, 0)
    stop: int = _key(_long_time_ns, 3600 * 10**9)


@dataclass(frozen=True)
class TransportTable:
    """``[transport]``: of the peers' flows."""

    segment: int = _key(_whole(64, 65000), 1448, "bytes of data in a packet")
    headers: int = _key(_whole(0, 1000), 66, "bytes of its headers")
    window: int = _key(_whole(0, 1024), 0, "packets that may be outstanding; 0: twice the path's, from 32 on")
    ack_every: int = _key(_whole(1, 64), 2, "packets that are acknowledged together")
    initial: int = _key(_whole(1, 1024), 10, "packets of the first window")
    least_rto: int = _key(_time_ns, 5_000_000)
    pieces: int = _key(
        _whole(0, 4096), 0, "pieces of a step that are passed on one by one; 0: what suits the peer"
    )


@dataclass(frozen=True)
class RunTable:
    """``[run]``: how it is run."""

    seeds: int = _key(_whole(1, 10_000), 1, "how many; they are 1 and up")
    limit: int = _key(_long_time_ns, 60 * 10**9, "virtual time after which a point has failed")
    check: bool = _key(flag_field, True, "compare all sums bit for bit")
    series: int = _key(_time_ns, 0, "interval of the time series; 0: none")
    fast_forward: bool = _key(flag_field, True, "leave out periods that repeat; results are the same")


Table = TypeVar("Table")


def read_table(kind: type[Table], found: object, place: str) -> Table:
    """Read a TOML table.

    Raises FieldError: an unknown or missing key, or a value that its key does not accept.
    """
    known = {each.name: each for each in fields(kind)}  # type: ignore[arg-type]  # all of them are dataclasses
    table = Fields(place, _renamed(known, found, place), form="a table")
    table.only(*known)
    values = {
        name: table.need(name, each.metadata["read"])
        if each.default is MISSING
        else table.get(name, each.metadata["read"], each.default)
        for name, each in known.items()
    }
    return kind(**values)


def _renamed(known: Mapping[str, Any], found: object, place: str) -> object:
    """Return a table with the present names and values in place of earlier ones, after a warning."""
    if not isinstance(found, Mapping):
        return found
    now = dict(found)
    for name, each in known.items():
        old, values_now = each.metadata["was"]
        if old in now and name not in now and repr(now[old]) in values_now:
            now[name] = values_now[repr(now.pop(old))]
            sentence = f'{place}.{old} is deprecated: write {name} = "{now[name]}"'
            warnings.warn(sentence, FutureWarning, stacklevel=3)
    return now


@dataclass(frozen=True)
class Settings:
    """All settings of a point."""

    topology: TopologyTable
    switch: SwitchTable
    host: HostTable
    transport: TransportTable
    controller: ControllerTable
    run: RunTable
    job: tuple[JobTable, ...]
    fault: tuple[FaultTable, ...] = ()
    script: tuple[ScriptTable, ...] = ()
    event: tuple[EventTable, ...] = ()
    background: tuple[BackgroundTable, ...] = ()
