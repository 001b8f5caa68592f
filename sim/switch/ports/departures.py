"""Compiled: the datagrams of frames that leave the switch, sent in batches; runs for one host as one message."""

# The integers of compiled code are NumPy's.
# mypy: disable-error-code="no-any-return,return-value"

from typing import NamedTuple

import numpy as np

from netsum_common.compiled import Array, Integer, compiled
from netsum_common.frames import ETHERNET_BYTES, UDP_BYTES, find_datagram, get16, get32, lost, swap16, swap32
from netsum_common.sockets import MSG_DONTWAIT, SEGMENT_CONTROL_BYTES, sendmmsg
from sim.switch.ports.frames import DROPPED_OUT, NOT_UDP, REFUSED, SENT, SENT_BYTES, PortRecord
from sim.switch.ports.kinds import TRANSMITTERS

MOST_RUN_BYTES = 65_000  # Most bytes of a run of datagrams: the system takes 65,507 as one message.


class DatagramOutbox(NamedTuple):
    """Sockets and the room for what goes out by them."""

    sockets: Array  # int32[:]. Position of the socket of each switch port, or -1.
    descriptors: Array  # int32[:]. The sockets.
    # messages, controls, vectors, receivers: MESSAGE[:], CONTROL[:], IO_VECTOR[:], ADDRESS[:]. Room for a batch; message i
    # points at control i and receiver i.
    messages: Array
    controls: Array
    vectors: Array
    receivers: Array
    # places, targets: int64[:, 2], int64[:]. Room for a batch: where each frame's datagram lies, and the receiver of each
    # vector.
    places: Array
    targets: Array
    starts: Array  # int64[:]. Room for one number more than there are sockets.
    longest_run: int  # How many datagrams the system takes as one message.
    record: PortRecord


@compiled
def transmit_datagrams(
    outbox: DatagramOutbox, ports: Array, lengths: Array, frames: Array, total: Integer
) -> Integer:
    """Send the datagrams of frames that leave the switch, in order on each port.

    `ports`, `lengths`, `frames` (uint16[:], int32[:], uint8[:, :]): the first `total` of these. Returns number of frames for
    ports that have no socket.
    """
    sockets, descriptors, statistics = outbox.sockets, outbox.descriptors, outbox.record.statistics
    places, targets, starts, vectors = outbox.places, outbox.targets, outbox.starts, outbox.vectors
    no_such_port = np.int64(0)
    done = np.int64(0)
    while done < total:
        batch = min(total - done, outbox.messages.shape[0])
        starts[:] = 0
        for i in range(batch):
            socket = sockets[ports[done + i]]
            places[i, 1] = -1
            if socket < 0:
                no_such_port += 1
                continue
            offset, size = find_datagram(frames[done + i], lengths[done + i])
            if size < 0:
                statistics[socket, NOT_UDP] += 1
            elif lost(outbox.record.draws_out, socket, outbox.record.drop_ppm):
                statistics[socket, DROPPED_OUT] += 1
            else:
                places[i, 0] = offset
                places[i, 1] = size
                starts[socket + 1] += 1
        for socket in range(descriptors.shape[0]):
            starts[socket + 1] += starts[socket]
        # `starts[s]` is where the vectors of socket s begin; it moves on as they are placed and ends where those of the
        # next socket begin.
        for i in range(batch):
            if places[i, 1] < 0:
                continue
            socket = sockets[ports[done + i]]
            offset = places[i, 0]
            place = starts[socket]
            starts[socket] += 1
            row = frames[done + i]
            vectors[place]["base"] = np.uint64(row.ctypes.data) + np.uint64(offset)
            vectors[place]["length"] = places[i, 1]
            targets[place] = (get32(row, ETHERNET_BYTES + 16) << 16) | get16(row, offset - UDP_BYTES + 2)
        begin = np.int64(0)
        for socket in range(descriptors.shape[0]):
            end = starts[socket]
            count = _gather(outbox, begin, end)
            _send(descriptors[socket], outbox.messages, vectors, count, begin, statistics[socket])
            begin = end
        done += batch
    return no_such_port


@compiled
def _gather(outbox: DatagramOutbox, begin: Integer, end: Integer) -> Integer:
    """Make messages of a socket's datagrams, one of each run for the same receiver; return how many.

    All datagrams of a run have the same size but the last, which may be shorter.
    """
    messages, vectors, targets, receivers = outbox.messages, outbox.vectors, outbox.targets, outbox.receivers
    count = np.int64(0)
    at = begin
    while at < end:
        size = vectors[at]["length"]
        total = size
        stop = at + 1
        while (
            stop < end
            and stop - at < outbox.longest_run
            and targets[stop] == targets[at]
            and vectors[stop - 1]["length"] == size
            and vectors[stop]["length"] <= size
            and vectors[stop]["length"] > 0
            and total + vectors[stop]["length"] <= MOST_RUN_BYTES
        ):
            total += vectors[stop]["length"]
            stop += 1
        messages[count]["vectors"] = np.uint64(vectors.ctypes.data) + np.uint64(at * vectors.itemsize)
        messages[count]["vector_count"] = stop - at
        messages[count]["control_length"] = SEGMENT_CONTROL_BYTES if stop - at > 1 else 0
        outbox.controls[count]["sent_segment"] = size
        receivers[count]["ip"] = swap32(np.uint32(targets[at] >> 16))
        receivers[count]["port"] = swap16(np.uint16(targets[at] & 0xFFFF))
        count += 1
        at = stop
    return count


@compiled
def _send(
    descriptor: Integer, messages: Array, vectors: Array, count: Integer, first_vector: Integer, counts: Array
) -> None:
    """Send the first messages by a socket, and count their datagrams."""
    at = np.int64(0)
    vector = first_vector
    while at < count:
        first = np.uintp(messages.ctypes.data) + np.uintp(at * messages.itemsize)
        sent = sendmmsg(descriptor, first, count - at, MSG_DONTWAIT)
        for i in range(at, at + max(sent, 1)):
            for _ in range(np.int64(messages[i]["vector_count"])):
                if sent > 0:
                    counts[SENT] += 1
                    counts[SENT_BYTES] += np.int64(vectors[vector]["length"])
                else:
                    counts[REFUSED] += 1
                vector += 1
        at += max(sent, 1)


TRANSMITTERS[DatagramOutbox] = transmit_datagrams
