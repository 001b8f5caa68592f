"""A host that floods a switch with contributions it has no right to.

``unknown_sender.py INTERFACE SECONDS SWITCH_MAC SWITCH_IP OWN_IP VICTIM_IP JOB_ID TOKEN LANES``

Half of them carry random tokens and its own address; half carry the job's true token and a worker's address, but come in at the
port of another host.
"""

import random
import socket
import struct
import sys
import time

from host_agent.wire.constants import FLAG_LANES, KIND_CONTRIBUTE, OP_SUM, UDP_PORT, VERSION
from host_agent.wire.header import Header


def frame(mac: bytes, source: str, target: str, payload: bytes) -> bytes:
    udp = struct.pack("!HHHH", UDP_PORT, UDP_PORT, 8 + len(payload), 0) + payload
    ip = struct.pack(
        "!BBHHHBBH4s4s",
        0x45,
        0,
        20 + len(udp),
        0,
        0,
        64,
        17,
        0,
        socket.inet_aton(source),
        socket.inet_aton(target),
    )
    total = sum(struct.unpack("!10H", ip))
    total = (total & 0xFFFF) + (total >> 16)
    checksum = ~(total + (total >> 16)) & 0xFFFF
    return mac + b"\x02\x00\x00\x00\x00\x99\x08\x00" + ip[:10] + struct.pack("!H", checksum) + ip[12:] + udp


def main() -> None:
    interface, seconds, mac, switch, own, victim, job_id, token, lanes = sys.argv[1:]
    switch_mac = bytes.fromhex(mac.replace(":", ""))
    draw = random.Random(1)
    frames = []
    for number in range(256):
        spoofed = number % 2
        header = Header(
            version=VERSION,
            kind=KIND_CONTRIBUTE,
            quorum=0,
            op=OP_SUM,
            flags=FLAG_LANES,
            job_id=int(job_id),
            token=int(token) if spoofed else draw.getrandbits(32),
            worker_id=draw.randrange(3),
            num_workers=0,
            pool_index=draw.randrange(128),
            chunk=draw.getrandbits(32),
            exponent=draw.getrandbits(16),
            fingerprint=draw.getrandbits(28),
        )
        payload = header.to_bytes() + draw.randbytes(4 * int(lanes))
        frames.append(frame(switch_mac, victim if spoofed else own, switch, payload))
    sent, end = 0, time.monotonic() + float(seconds)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
        wire.bind((interface, 0))
        while time.monotonic() < end:
            for one in frames:
                try:
                    wire.send(one)
                except OSError:  # The link's queue is full.
                    time.sleep(0.001)
                sent += 1
    print(sent)


if __name__ == "__main__":
    main()
