// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A switch's congestion marks, at the egress of a network interface.
//
// A classifier sees a frame before the queueing discipline does, and cannot ask how long its queue
// is. So it keeps one of its own: each frame takes the time that its bytes need at the rate of the
// link, and what is not over yet is the queue. By its length frames are chosen with RED, as DCQCN
// (Zhu et al., SIGCOMM 2015) wants it of switches: none below Kmin, more and more up to Pmax at
// Kmax, all above. A chosen frame leaves with CE (RFC 3168) if its sender is capable of ECN. No
// frame is dropped here.

#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <stdbool.h>

#include <bpf/bpf_helpers.h>

#include "mark_ce.h"

#define NANOSECONDS 1000000000ULL

// The link and its thresholds. Written before the program is loaded.
const volatile __u64 bytes_per_second = 1;
const volatile __u32 k_min = 0;
const volatile __u32 k_max = 0;
// How probable a mark is at k_max, in 1/2^32.
const volatile __u32 p_max = 0;
// So many bytes the queue holds.
const volatile __u32 limit = 0;

struct virtual_queue {
	struct bpf_spin_lock lock;
	// Its length when the last frame came, in bytes, without that one.
	__u32 length;
	// When it will be empty.
	__u64 until;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct virtual_queue);
} queue SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MARK_STATS);
	__type(key, __u32);
	__type(value, __u64);
} marks SEC(".maps");

static __always_inline void count(enum mark_stat what)
{
	__u32 key = what;
	__u64 *value = bpf_map_lookup_elem(&marks, &key);

	if (value)
		*value += 1;
}

// A frame of `len` bytes comes to the queue: how long it was before.
static __always_inline __u64 enter(struct virtual_queue *queue, __u32 len)
{
	__u64 now = bpf_ktime_get_ns();
	__u64 need = len * NANOSECONDS / bytes_per_second;
	__u64 waits, length;

	bpf_spin_lock(&queue->lock);
	waits = queue->until > now ? queue->until - now : 0;
	length = waits * bytes_per_second / NANOSECONDS;
	if (length + len <= limit)
		queue->until = now + waits + need;
	queue->length = length;
	bpf_spin_unlock(&queue->lock);
	return length;
}

// Whether RED chooses a frame that finds a queue of this length.
static __always_inline bool chooses(__u64 length)
{
	__u64 above;

	if (length < k_min)
		return false;
	if (length >= k_max)
		return true;
	above = length - k_min;
	return bpf_get_prandom_u32() < p_max * above / (k_max - k_min);
}

static __always_inline enum mark_stat judge(struct __sk_buff *skb)
{
	__u32 key = 0;
	struct virtual_queue *it = bpf_map_lookup_elem(&queue, &key);
	__u64 length;

	if (!it)
		return MARK_PASSED;
	length = enter(it, skb->len);
	if (length + skb->len > limit)
		return MARK_OVER;
	if (!chooses(length))
		return MARK_PASSED;
	// It also corrects the checksum of an IPv4 header. Says whether the packet has CE now.
	return bpf_skb_ecn_set_ce(skb) ? MARK_MARKED : MARK_NOT_ECT;
}

SEC("tc")
int mark_ce(struct __sk_buff *skb)
{
	count(judge(skb));
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
