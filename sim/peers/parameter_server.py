"""Parameter servers: Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014, synchronous.

Every worker sends its array, cut up among the servers; a server that has a piece from all workers sends the sum to all. Servers
are hosts of their own, or the workers' hosts, each with 1/n of the array.
"""

from sim.peers.group import PeerGroup, Tokens, split


def parameter_server(group: PeerGroup, size: int, ready: Tokens) -> Tokens:
    """Write down an all-reduce over the group's servers."""
    messages = group.messages
    done: Tokens = [[] for _ in group.workers]
    shards = split(size, len(group.servers))
    # All servers get their first pieces first.
    for at in range(group.pieces):
        for server, shard in zip(group.servers, shards, strict=False):
            pieces = group.cut(shard)
            if at >= len(pieces):
                continue
            came = [
                messages.send(worker, server, pieces[at], ready[number])
                for number, worker in enumerate(group.workers)
            ]
            for number, worker in enumerate(group.workers):
                done[number].append(messages.send(server, worker, pieces[at], came))
    return done
