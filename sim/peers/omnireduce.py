"""OmniReduce's aggregator.

Fei et al., "Efficient sparse collective communication and its application to accelerate distributed deep learning", SIGCOMM
2021, section 3. The array is cut into blocks, the blocks into as many streams as may be under way. In a stream the aggregator
works on one block at a time: workers whose block is not zero send it, each with the number of its next one that is not zero.
When it has all of them it sends the sum to all workers, with the smallest next number: workers that have that block send it. So
only blocks that are not zero at some worker travel, and each worker sends only its own. The first block of a stream is sent by
all.
"""

import numpy as np

from sim.peers.group import PeerGroup, Tokens

BLOCK_BYTES = 1024
HEADER_BYTES = 16  # Numbers of the block and of the next one; of stream and worker.
STREAMS = 64
BLOCKS_FUSED = 8
"""Blocks that go as one message (section 3.3, block fusion); more where the array would need more than `MOST_MESSAGES`."""
MOST_MESSAGES = 400_000


def omnireduce(group: PeerGroup, size: int, ready: Tokens) -> Tokens:
    """Write down an all-reduce over the group's servers, each with a part of the streams."""
    messages, workers = group.messages, group.workers
    blocks = -(-size // BLOCK_BYTES)
    fused = max(BLOCKS_FUSED, -(-blocks * 2 * len(workers) // MOST_MESSAGES))
    columns = -(-blocks // fused)
    dice = np.random.Generator(np.random.Philox(key=[group.seed, size]))
    # Blocks are zero or not by themselves; of those that are fused, only the others are sent, and those of any worker come back.
    full = np.full((len(workers), columns), fused)
    united = full[0]
    if group.density < 1:
        drawn = 1 if group.common else len(workers)
        chosen = dice.random((drawn, columns, fused), np.float32) < group.density
        full = np.broadcast_to(chosen.sum(axis=2), (len(workers), columns))
        united = chosen.any(axis=0).sum(axis=1)
    done: Tokens = [list(tokens) for tokens in ready]
    streams = min(STREAMS * len(group.servers), columns)
    after = [[list(tokens) for tokens in ready] for _ in range(streams)]
    for column in range(columns):
        stream = column % streams
        server = group.servers[stream % len(group.servers)]
        amounts = [int(each) * (BLOCK_BYTES + HEADER_BYTES) for each in full[:, column]]
        first = column < streams
        if not any(amounts) and not first:
            continue
        came = [
            messages.send(worker, server, max(amounts[number], HEADER_BYTES), after[stream][number])
            for number, worker in enumerate(workers)
            if amounts[number] or first
        ]
        summed = max(int(united[column]) * (BLOCK_BYTES + HEADER_BYTES), HEADER_BYTES)
        for number, worker in enumerate(workers):
            result = messages.send(server, worker, summed, came)
            after[stream][number] = [result]
            done[number].append(result)
    return done
