// The slot program by hand as XDP: what slot_program.c does, for one job, with the kernel's maps and locks.
//
// `arrive` is at each interface: it checks the same headers and the checksum, looks the worker up, and adds with saturation
// under the slot's lock; the last contribution becomes the RESULT, which goes to all workers' interfaces. `copy` is at each
// of them, and makes the RESULT that worker's own. What is no fresh contribution of the job is dropped.

#include <stdint.h>

struct xdp_md { uint32_t data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex; };
enum { XDP_DROP = 1, XDP_PASS = 2, BROADCAST = 1 << 3 };
enum { ETHERNET = 14, IPV4 = 20, UDP = 8, NETSUM = 24, LANES_AT = ETHERNET + IPV4 + UDP + NETSUM };
enum { FRAME = LANES_AT + 4 * LANES, CONTRIBUTE_WITH_LANES = 1 };

struct worker_key { uint32_t interface, ip, token, job_and_id; };
struct worker { uint8_t mac[6], own_mac[2]; uint32_t ip, own_ip, udp_port, id, workers; uint64_t packets, bytes; };
struct slot {
    uint32_t lock, epoch, chunk, collective, seen, exponent, unused[2];
    int32_t lanes[LANES];
};

extern char slots __asm__("map.slots"), workers __asm__("map.workers"), ports __asm__("map.ports"), group __asm__("map.group");
static void *(*map_lookup)(void *map, const void *key) = (void *) 1;
static long (*redirect_map)(void *map, uint64_t key, uint64_t flags) = (void *) 51;
static long (*spin_lock)(uint32_t *lock) = (void *) 93;
static long (*spin_unlock)(uint32_t *lock) = (void *) 94;

#define ntoh16(at) __builtin_bswap16(*(const uint16_t *) (at))
#define ntoh32(at) __builtin_bswap32(*(const uint32_t *) (at))
#define put16(at, value) (*(uint16_t *) (at) = __builtin_bswap16(value))
#define put32(at, value) (*(uint32_t *) (at) = __builtin_bswap32(value))

static inline __attribute__((always_inline)) uint32_t sum16(const uint8_t *ip) {
    uint32_t sum = 0;
#pragma unroll
    for (int i = 0; i < IPV4; i += 2) sum += ntoh16(ip + i);
    sum = (sum & 0xffff) + (sum >> 16);
    return ((sum & 0xffff) + (sum >> 16)) & 0xffff;
}

int arrive(struct xdp_md *context) {
    uint8_t *frame = (uint8_t *) (uint64_t) context->data, *end = (uint8_t *) (uint64_t) context->data_end;
    if (frame + FRAME > end) return XDP_DROP;
    uint8_t *ip = frame + ETHERNET, *udp = ip + IPV4, *netsum = udp + UDP, *lanes = netsum + NETSUM;
    if (end != frame + FRAME || ntoh16(frame + 12) != 0x0800 || ip[0] != 0x45 || (ntoh16(ip + 6) & 0x3fff) || ip[9] != 17 ||
        ntoh16(ip + 2) != FRAME - ETHERNET || sum16(ip) != 0xffff || ntoh16(udp + 2) != UDP_PORT ||
        ntoh16(udp + 4) != FRAME - ETHERNET - IPV4 || netsum[0] != (VERSION << 4 | CONTRIBUTE_WITH_LANES) ||
        netsum[1] != FLAG_LANES || netsum[4] >> 4 != OP_SUM)
        return XDP_DROP;
    struct worker_key key = { context->ingress_ifindex, ntoh32(ip + 12), ntoh32(netsum + 8), ntoh16(netsum + 2) << 8 | netsum[12] };
    struct worker *from = map_lookup(&workers, &key);
    uint32_t index = ntoh16(netsum + 14), chunk = ntoh32(netsum + 16), exponent = ntoh16(netsum + 20);
    if (!from || ntoh32(ip + 16) != from->own_ip) return XDP_DROP;
    struct slot *slot = map_lookup(&slots, &index);
    if (!slot) return XDP_DROP;
    __sync_fetch_and_add(&from->packets, 1);
    __sync_fetch_and_add(&from->bytes, FRAME);
    uint32_t collective = ntoh32(netsum + 4), bit = 1u << (from->id & 31), all = (uint32_t) ((1ull << from->workers) - 1);
    spin_lock(&slot->lock);
    uint32_t age = slot->epoch == EPOCH ? chunk - slot->chunk : 1;
    if (age >> 31) goto stale;
    if (age) slot->epoch = EPOCH, slot->chunk = chunk, slot->collective = collective, slot->seen = 0, slot->exponent = 0;
    if (slot->collective != collective || (slot->seen & bit)) goto stale;
    if (slot->seen == 0) {
        for (int i = 0; i < LANES; i++) slot->lanes[i] = ntoh32(lanes + 4 * i);
    } else {
        for (int i = 0; i < LANES; i++) {
            int64_t sum = (int64_t) slot->lanes[i] + (int32_t) ntoh32(lanes + 4 * i);
            slot->lanes[i] = sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum;
        }
    }
    if (!FORGETS) slot->seen |= bit; else slot->seen = 1 << 31;
    if (exponent > slot->exponent) slot->exponent = exponent;
    if (slot->seen != all) goto stale;
    for (int i = 0; i < LANES; i++) put32(lanes + 4 * i, slot->lanes[i]);
    exponent = slot->exponent;
    spin_unlock(&slot->lock);
    ip[1] = 0, ip[8] = 64;
    put16(ip + 4, 0);
    put32(ip + 12, from->own_ip);
    netsum[0] = (netsum[0] & 0xf0) | 2;
    netsum[13] = from->workers;
    put16(netsum + 20, exponent);
    return redirect_map(&group, 0, BROADCAST);
stale:
    spin_unlock(&slot->lock);
    return XDP_DROP;
}

int copy(struct xdp_md *context) {
    uint8_t *frame = (uint8_t *) (uint64_t) context->data;
    if (frame + FRAME > (uint8_t *) (uint64_t) context->data_end) return XDP_DROP;
    uint32_t interface = context->egress_ifindex;
    struct worker *to = map_lookup(&ports, &interface);
    if (!to) return XDP_DROP;
    uint8_t *ip = frame + ETHERNET, *udp = ip + IPV4, *netsum = udp + UDP;
    for (int i = 0; i < 6; i++) frame[6 + i] = frame[i], frame[i] = to->mac[i];
    put32(ip + 16, to->ip);
    put16(ip + 10, 0);
    put16(ip + 10, ~sum16(ip) & 0xffff);
    put16(udp, UDP_PORT);
    put16(udp + 2, to->udp_port);
    put16(udp + 6, 0);
    netsum[12] = to->id;
    return XDP_PASS;
}
