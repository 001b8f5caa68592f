"""The congestion window of a worker core: how many bytes of its chunks may be under way.

Slots bound what switches hold, the window bounds what queues hold. The job's slowest worker is the one with the smallest window
for its path. All others wait for it, and the RESULT of a chunk says who was last (`completer`): only then was its time that of
the path. Who was not last has no sample, and its window stays: waiting for a straggler is no congestion. Who was last, and kept
chunks back, may have more. So the windows that do not limit the job do not matter, and need not be right.

Rounds take about a round trip. The least time in a round, compared with the least ever, says how much of the window is in queues.

Alone, or beside jobs like itself, a worker keeps `QUEUE_PACKETS` in the queue, by the rule of FAST TCP (Wei, Jin, Low, Hegde:
"FAST TCP", IEEE/ACM Transactions on Networking 14(6), 2006), and what the jitter of a host keeps under way besides. All workers
of a large job may meet in one queue, and keep `JOB_QUEUE_PACKETS` there together. Losses do
not count before a twelfth is lost, the queue is twice as long as it should be, or it makes round trips twice as long though the
window is small: a lossy link loses less, and an overflowing queue more. When first windows overflow a queue, as where many
workers meet, what has arrived of them counts as the congested window.

Beside flows that fill the queue that share would be too small. So now and then a worker takes a quarter of its window back for
some round trips (Copa, Arun and Balakrishnan, NSDI 2018; Nimbus, Goyal et al., SIGCOMM 2022). If the round trip falls by as
much, the queue is its own. If it hardly falls, others fill it, and the worker competes as CUBIC does (RFC 9438): the window grows
until a loss or marks, and shrinks to 70 %. Marks shrink it in both cases, as in DCTCP (RFC 8257), by half of their share of a
round's RESULTs. A window that marks shrink grows by a segment in each round that it fills, marked or not, as in the model of
DCTCP (Alizadeh, Javanmard, Prabhakar: "Analysis of DCTCP", SIGMETRICS 2011, equation 1): DCTCP's flows beside it do so too.
"""

from typing import Final

import numpy as np

from host_agent.protocol.records import NEVER
from host_agent.wire.constants import HEADER_BYTES
from host_agent.wire.lengths import FRAME_HEADERS_BYTES
from netsum_common.compiled import Integer, Record, compiled, compiled_inline

FIRST_BYTES: Final = 70_000
"""The first window: arrays of 64 KiB begin as if there were none."""
LEAST_PACKETS: Final = 2
QUEUE_PACKETS: Final = 16  # How many a worker keeps in the queue,
JOB_QUEUE_PACKETS: Final = 128  # and how many all of a job together,
LEAST_QUEUE_PACKETS: Final = 4  # but each at least this number.
LOST_SHARE: Final = 12  # More than 1/n lost is congestion,
LEAST_LOST: Final = 6  # if it is at least this number,
COUNTED: Final = 64  # counted over at least this number of RESULTs, from the round of the first on.
TRIAL_SHARE: Final = 4  # A trial takes back 1/n of the window.
TRIAL_ROUNDS: Final = 3  # The first still has chunks of before, in the second other workers follow.
TRIAL_WAIT: Final = 12  # Rounds between trials.
SECOND_WAIT: Final = 3  # Rounds before the next, after one that finds another owner than was thought.
TRIALS: Final = 2  # So many must find that in a row.
FOREIGN_SHARE: Final = 400
OWN_SHARE: Final = 700
"""If less than the first share, of 1,024, of the expected fall comes, the queue is others'; if more than the second, its own."""
_ONE: Final = 1024
_MS: Final = 1_000_000
_MOST: Final = 1 << 40
_LONG_AGO: Final = -(1 << 60)
_SEGMENT: Final = 1514  # CUBIC and DCTCP grow by segments of that length.


@compiled
def reset_congestion(core: Record) -> None:
    """Begin with the first window."""
    core.window_bytes = FIRST_BYTES
    core.threshold_bytes = _MOST
    core.largest_ns = _LONG_AGO
    core.starting = 1
    core.path_ns = NEVER
    core.trial_wait = SECOND_WAIT
    _begin_round(core)
    core.round_end = -1


@compiled_inline
def frame_bytes(core: Record, has_lanes: bool) -> Integer:
    """Return the length of a packet with or without lanes on the wire."""
    return FRAME_HEADERS_BYTES + HEADER_BYTES + (core.lane_bytes if has_lanes else np.int64(0))


@compiled_inline
def leaves(core: Record, slot: Record) -> None:
    """Count a chunk's packet among those under way."""
    core.flight_bytes += slot.frame_bytes - slot.under_way
    slot.under_way = slot.frame_bytes


@compiled_inline
def is_gone(core: Record, slot: Record) -> None:
    """Note that a chunk's packet is not under way any more: it has arrived or is lost."""
    core.flight_bytes -= slot.under_way
    slot.under_way = 0


@compiled_inline
def take_path_time(core: Record, ns: Integer) -> None:
    """Take in a round trip to the switch and back: a PROBE's, or that of a chunk whose last contribution this worker sent."""
    core.round_least_ns = min(core.round_least_ns, ns)
    core.round_total_ns += ns
    core.round_samples += 1


@compiled_inline
def count_result(core: Record, chunk: Integer, marked: bool, now_ns: Integer) -> None:
    """Count a RESULT; that of the first chunk of a round ends the round before."""
    if core.round_end < 0:
        core.round_end = core.next_chunk  # The first round is that of the first window.
    core.round_results += 1
    core.counted += 1
    core.round_marked += marked
    if chunk >= core.round_end:
        _end_round(core, now_ns)


@compiled
def count_loss(core: Record, chunk: Integer, now_ns: Integer) -> None:
    """Count a lost packet; make the window smaller if that means congestion."""
    if chunk < core.recover_chunk:
        if core.trimming != 0:  # There is room for what has arrived of a flight that was too large.
            core.largest_bytes = _bounded(core, core.largest_bytes - frame_bytes(core, True))
            core.window_bytes = _bounded(core, core.largest_bytes * 7 // 10)
            core.threshold_bytes = core.window_bytes
        return
    core.round_lost += 1
    core.counted_lost += 1
    many = core.counted_lost >= LEAST_LOST and core.counted_lost * LOST_SHARE > core.counted
    queued = _queued(core)
    few = core.window_bytes < QUEUE_PACKETS * frame_bytes(core, True)
    # Too many workers meet, and their queue makes round trips twice as long.
    crowded = few and core.round_samples > 0 and core.round_least_ns // 2 > core.path_ns
    if core.competes == 0 and not many and not crowded and queued <= 2 * _target(core):
        return
    core.counted_lost = 0
    core.counted = 0
    if core.trial_rounds > 0:
        core.window_bytes = core.trial_bytes
        core.trial_rounds = 0
    core.trimming = core.starting
    _shrink(core, core.window_bytes * 7 // 10, now_ns)
    core.recover_chunk = core.next_chunk
    core.trial_wait = max(core.trial_wait, np.int64(SECOND_WAIT))
    _begin_round(core)


@compiled
def _shrink(core: Record, window: Integer, now_ns: Integer) -> None:
    core.largest_bytes = core.window_bytes
    core.largest_ns = now_ns
    core.window_bytes = _bounded(core, window)
    core.threshold_bytes = core.window_bytes
    core.starting = 0


@compiled
def _begin_round(core: Record) -> None:
    core.round_end = core.next_chunk
    core.round_least_ns = NEVER
    core.round_total_ns = 0
    core.round_samples = 0
    core.round_lost = 0
    core.round_marked = 0
    core.round_results = 0
    core.round_full = 0


@compiled
def _bounded(core: Record, window: Integer) -> Integer:
    return min(max(window, LEAST_PACKETS * frame_bytes(core, True)), _all_slots(core))


@compiled_inline
def _all_slots(core: Record) -> Integer:
    return core.slot_count * frame_bytes(core, True)


@compiled
def _queued(core: Record) -> Integer:
    """Return how many bytes of the window are in queues (Little's law)."""
    if core.round_samples == 0:
        return np.int64(0)
    return core.window_bytes * (core.round_least_ns - core.base_ns) // max(core.round_least_ns, np.int64(1))


@compiled
def _target(core: Record) -> Integer:
    """Return how many bytes should be in queues."""
    jitter = np.int64(0)
    if core.round_samples > 0:
        jitter = core.window_bytes * core.jitter_ns // max(core.round_least_ns, np.int64(1))
    packets = min(np.int64(QUEUE_PACKETS), JOB_QUEUE_PACKETS // core.num_workers)
    return max(packets, np.int64(LEAST_QUEUE_PACKETS)) * frame_bytes(core, True) + jitter


@compiled
def _end_round(core: Record, now_ns: Integer) -> None:
    """Let the round trips, losses and marks of a round change the window."""
    if core.round_marked > 0 or core.marked_share > 0:
        share = core.round_marked * _ONE // core.round_results
        core.marked_share += (share - core.marked_share) // 16
    if core.counted >= COUNTED or core.counted_lost == 0:
        core.counted_lost = 0
        core.counted = 0
    if core.round_samples == 0 and core.trial_rounds > 0:
        core.window_bytes = core.trial_bytes
        core.trial_rounds = 0
        core.trial_wait = SECOND_WAIT
    if core.round_samples > 0:
        spread_ns = core.round_total_ns // core.round_samples - core.round_least_ns
        core.jitter_ns = min(spread_ns, core.jitter_ns + (spread_ns - core.jitter_ns) // 8)
        if core.trial_rounds > 0:
            _go_on_with_trial(core)
        elif core.round_marked > 0:
            fall = core.window_bytes * core.marked_share // (2 * _ONE)
            _shrink(core, core.window_bytes - fall + core.round_full * _SEGMENT, now_ns)
        else:
            _adapt(core, now_ns)
            _consider_trial(core)
    _begin_round(core)


@compiled
def _adapt(core: Record, now_ns: Integer) -> None:
    """Change the window at the end of a round without marks in which this worker was last."""
    queued, target, window = _queued(core), _target(core), core.window_bytes
    if window >= _all_slots(core):
        core.largest_ns = _LONG_AGO  # The last congestion does not keep the window down any more.
    mean_ns = core.round_total_ns // core.round_samples
    if core.competes != 0:
        grown = window + window // 2
    elif core.starting != 0 and window * (mean_ns - core.base_ns) // max(mean_ns, np.int64(1)) <= target // 2:
        grown = 2 * window
    else:
        core.starting = 0
        grown = min(2 * window, window + (target - queued) // 2)
    if grown > window:
        if core.round_full == 0:
            return
        if window >= core.threshold_bytes:
            grown = min(grown, max(window + _linear(core), _cubic(core, now_ns)))
        else:
            grown = min(grown, core.threshold_bytes)
    core.window_bytes = _bounded(core, grown)


@compiled
def _linear(core: Record) -> Integer:
    """Return by how much a window grows in a round at least.

    CUBIC has 0.53 segments beside Reno (RFC 9438, section 4.3). But a job's packets pass queues both ways, and a loss in either
    shrinks the window: with twice the losses, about twice the growth gives the same rate. Small windows grow by less, as many
    workers may meet on a link. Beside others a worker grows by a segment in a tree, whose links carry one packet of a chunk, else
    all workers of the job together do. Marks keep a queue short however many meet: each window grows by a segment.
    """
    least = min(np.int64(_SEGMENT), core.window_bytes // 16)
    if core.marked_share > 0 or (core.competes != 0 and core.levels > 1):
        return np.int64(_SEGMENT)
    return least if core.competes == 0 else max(least, _SEGMENT // core.num_workers)


@compiled
def _cubic(core: Record, now_ns: Integer) -> Integer:
    """Return CUBIC's window, in bytes."""
    bend_ms = cubic_inflection_ms(core.largest_bytes * 3 // 10, np.int64(_SEGMENT))
    since_ms = min((now_ns - core.largest_ns) // _MS - bend_ms, np.int64(1 << 18))
    return core.largest_bytes + cubic_growth(since_ms, np.int64(_SEGMENT))


@compiled
def cubic_inflection_ms(fall: Integer, segment: Integer) -> Integer:
    """Return CUBIC's K, after which a window has grown by its fall again: K^3 = fall / 0.4 segments (RFC 9438, section 4.2)."""
    reached = fall * 5 // 2 * 1_000_000_000 // segment
    low, high = np.int64(0), np.int64(1 << 18)
    while high - low > 1:
        middle = (low + high) // 2
        if middle * middle * middle <= reached:
            low = middle
        else:
            high = middle
    return low


@compiled
def cubic_growth(since_ms: Integer, segment: Integer) -> Integer:
    """Return by how much CUBIC's window is above that at the inflection: 0.4 t^3 segments, t in seconds."""
    return since_ms * since_ms // 1000 * since_ms // 1000 * segment * 4 // 10_000


# Trials.


@compiled
def _consider_trial(core: Record) -> None:
    """Begin a trial if it is time and there is a queue."""
    core.trial_wait = max(core.trial_wait - 1, np.int64(0))
    queued, packet = _queued(core), frame_bytes(core, True)
    if core.trial_wait > 0 or core.round_lost > 0 or core.round_full == 0:
        return
    if core.competes == 0 and core.window_bytes >= _all_slots(core):
        return  # Such a window would not grow if others filled the queue.
    if queued < LEAST_PACKETS * packet or core.window_bytes < 2 * LEAST_PACKETS * packet:
        return
    core.trial_rounds = TRIAL_ROUNDS
    core.trial_ns = core.round_least_ns
    core.trial_bytes = core.window_bytes
    core.window_bytes -= min(core.window_bytes // TRIAL_SHARE, queued)


@compiled
def _go_on_with_trial(core: Record) -> None:
    """Count a round of a trial, and judge by the last one."""
    core.trial_rounds -= 1
    if core.trial_rounds > 0:
        return
    taken = core.trial_bytes - core.window_bytes
    fell_ns = max(core.trial_ns - core.round_least_ns, np.int64(0))
    # Alone, the round trip falls by the share that was taken.
    share = fell_ns * _ONE // max(core.trial_ns * taken // core.trial_bytes, np.int64(1))
    core.window_bytes = core.trial_bytes
    core.trial_wait = TRIAL_WAIT
    doubtful = share < FOREIGN_SHARE if core.competes == 0 else share > OWN_SHARE
    core.doubts = core.doubts + 1 if doubtful else 0
    if core.doubts > 0:
        core.trial_wait = SECOND_WAIT
    if core.doubts == TRIALS:
        core.competes = 1 - core.competes
        core.threshold_bytes = _MOST
        if core.competes != 0 and core.largest_bytes > QUEUE_PACKETS * frame_bytes(core, True):
            core.threshold_bytes = core.largest_bytes  # Known from the last congestion: no second slow start.
        core.doubts = 0
