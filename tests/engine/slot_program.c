// The slot program by hand: what netsum.p4 does with a contribution that has lanes, for one job, as plain C.
//
// It checks the same headers and the checksum, looks the worker up, adds with saturation, counts, and writes a RESULT for
// each worker. What is no fresh contribution of the job is dropped: repeated and stale ones, PROBEs, other traffic.

#include <stdint.h>
#include <string.h>

enum { ETHERNET = 14, IPV4 = 20, UDP = 8, NETSUM = 24, LANES_AT = ETHERNET + IPV4 + UDP + NETSUM };
enum { FRAME = LANES_AT + 4 * LANES, CONTRIBUTE_WITH_LANES = 1, POOL_INDICES = 2048, TABLE = 256, MAX_WORKERS = 32 };

struct worker {
    uint32_t used, port, ip, token, job, id, udp_port;
    uint8_t mac[6];
    uint64_t packets, bytes;
};

struct slot {
    uint32_t epoch, chunk, collective, seen;
    uint16_t exponent;
    int32_t lanes[LANES] __attribute__((aligned(64)));
};

static struct {
    struct worker table[TABLE];
    struct worker *of[MAX_WORKERS];
    uint32_t workers, job, epoch, indices, ip, group_port[MAX_WORKERS];
    uint8_t mac[6];
    uint64_t added, completed, dropped;
    struct slot slots[POOL_INDICES];
} job __attribute__((aligned(64)));

static uint32_t get16(const uint8_t *at) { return (uint32_t) at[0] << 8 | at[1]; }
static uint32_t get32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return __builtin_bswap32(value);
}
static void put16(uint8_t *at, uint32_t value) { at[0] = value >> 8, at[1] = value; }
static void put32(uint8_t *at, uint32_t value) {
    value = __builtin_bswap32(value);
    memcpy(at, &value, 4);
}

static uint32_t sum16(const uint8_t *at, int bytes) {
    uint32_t sum = 0;
    for (int i = 0; i < bytes; i += 2) sum += get16(at + i);
    sum = (sum & 0xffff) + (sum >> 16);
    return ((sum & 0xffff) + (sum >> 16)) & 0xffff;
}

static uint32_t place(uint32_t port, uint32_t ip, uint32_t id, uint32_t number) {
    uint32_t mixed = (port * 31 + ip * 7 + id * 131 + number) * 0x9E3779B1u;
    return mixed >> 24;
}

void twin_start(uint32_t number, uint32_t epoch, uint32_t indices, uint32_t ip, const uint8_t *mac) {
    memset(&job, 0, sizeof job);
    job.job = number, job.epoch = epoch, job.indices = indices, job.ip = ip;
    memcpy(job.mac, mac, 6);
}

void twin_worker(uint32_t port, uint32_t ip, uint32_t token, uint32_t udp_port, const uint8_t *mac) {
    uint32_t at = place(port, ip, job.job, job.workers);
    while (job.table[at].used) at = (at + 1) % TABLE;
    struct worker *entry = &job.table[at];
    *entry = (struct worker) { 1, port, ip, token, job.job, job.workers, udp_port };
    memcpy(entry->mac, mac, 6);
    job.group_port[job.workers] = port;
    job.of[job.workers++] = entry;
}

static struct worker *look_up(uint32_t port, uint32_t ip, uint32_t number, uint32_t id, uint32_t token) {
    for (uint32_t at = place(port, ip, number, id); job.table[at].used; at = (at + 1) % TABLE) {
        struct worker *entry = &job.table[at];
        if (entry->port == port && entry->ip == ip && entry->job == number && entry->id == id && entry->token == token)
            return entry;
    }
    return 0;
}

static void combine(struct slot *slot, const uint8_t *frame, int first) {
    const uint8_t *in = frame + LANES_AT;
    for (int i = 0; i < LANES; i++) {
        uint32_t raw;
        memcpy(&raw, in + 4 * i, 4);
        int32_t lane = (int32_t) __builtin_bswap32(raw), held = slot->lanes[i];
        int32_t sum = (int32_t) ((uint32_t) held + (uint32_t) lane);
        int32_t overflow = (~(held ^ lane) & (held ^ sum)) >> 31;
        sum = (overflow & ((held >> 31) ^ INT32_MAX)) | (~overflow & sum);
        slot->lanes[i] = first ? lane : sum;
    }
}

static void answer(const struct slot *slot, const uint8_t *frame, uint8_t *out, uint32_t id) {
    const struct worker *to = job.of[id];
    memcpy(out, frame, LANES_AT);
    memcpy(out, to->mac, 6);
    memcpy(out + 6, job.mac, 6);
    uint8_t *ip = out + ETHERNET, *udp = ip + IPV4, *netsum = udp + UDP;
    ip[1] = 0;
    put16(ip + 4, 0);
    put16(ip + 6, 0x4000 | (get16(ip + 6) & 0x3fff));
    ip[8] = 64;
    put16(ip + 10, 0);
    put32(ip + 12, job.ip);
    put32(ip + 16, to->ip);
    put16(ip + 10, ~sum16(ip, IPV4) & 0xffff);
    put16(udp, get16(udp + 2));
    put16(udp + 2, to->udp_port);
    put16(udp + 6, 0);
    netsum[0] = (netsum[0] & 0xf0) | 2;
    netsum[12] = id;
    netsum[13] = job.workers;
    put16(netsum + 20, slot->exponent);
    uint8_t *lanes = out + LANES_AT;
    for (int i = 0; i < LANES; i++) {
        uint32_t raw = __builtin_bswap32((uint32_t) slot->lanes[i]);
        memcpy(lanes + 4 * i, &raw, 4);
    }
}

// Rows of frames in, rows of frames out; returns how many.
int64_t twin_run(const uint8_t *frames, int64_t stride, const int32_t *lengths, const uint16_t *ports, int64_t count,
                 uint8_t *out_frames, int64_t out_stride, int32_t *out_lengths, uint16_t *out_ports) {
    int64_t left = 0;
    for (int64_t row = 0; row < count; row++) {
        const uint8_t *frame = frames + row * stride, *ip = frame + ETHERNET, *udp = ip + IPV4, *netsum = udp + UDP;
        job.dropped++;
        if (lengths[row] != FRAME || memcmp(frame, job.mac, 6) || get16(frame + 12) != 0x0800 || ip[0] != 0x45 ||
            (get16(ip + 6) & 0x3fff) || ip[9] != 17 || get32(ip + 16) != job.ip || get16(ip + 2) != FRAME - ETHERNET ||
            sum16(ip, IPV4) != 0xffff || get16(udp + 2) != UDP_PORT || get16(udp + 4) != FRAME - ETHERNET - IPV4 ||
            netsum[0] != (VERSION << 4 | CONTRIBUTE_WITH_LANES) || netsum[1] != FLAG_LANES || netsum[4] >> 4 != OP_SUM)
            continue;
        struct worker *from = look_up(ports[row], get32(ip + 12), get16(netsum + 2), netsum[12], get32(netsum + 8));
        uint32_t index = get16(netsum + 14), chunk = get32(netsum + 16), exponent = get16(netsum + 20);
        if (!from || index >= job.indices) continue;
        from->packets++, from->bytes += FRAME;
        struct slot *slot = &job.slots[index];
        uint32_t collective = get32(netsum + 4), bit = 1u << from->id;
        uint32_t age = slot->epoch == job.epoch ? chunk - slot->chunk : 1;
        if (age >> 31) continue;
        if (age) {
            slot->epoch = job.epoch, slot->chunk = chunk, slot->collective = collective;
            slot->seen = 0, slot->exponent = 0;
        }
        if (slot->collective != collective || slot->seen & bit) continue;
        combine(slot, frame, slot->seen == 0);
        slot->seen |= bit;
        if (exponent > slot->exponent) slot->exponent = exponent;
        job.dropped--, job.added++;
        if (slot->seen != (uint32_t) ((1ull << job.workers) - 1)) continue;
        job.completed++;
        for (uint32_t id = 0; id < job.workers; id++, left++) {
            answer(slot, frame, out_frames + left * out_stride, id);
            out_lengths[left] = FRAME, out_ports[left] = job.group_port[id];
        }
    }
    return left;
}
