// SPDX-License-Identifier: MIT OR Apache-2.0
//
// RoCEv2 to the AF_XDP socket of the frame's queue, everything else to the kernel.
//
// RoCEv2 is UDP to port 4791 over IPv4 without options or over IPv6 without extension headers,
// unfragmented, behind at most two VLAN tags. No frame is changed and none is dropped here: what
// is broken goes to the kernel, which counts it.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <stdbool.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "redirect_roce.h"

#define ROCE_PORT 4791
#define BTH_LEN 12
#define MAX_QUEUES 64
#define MAX_VLAN_TAGS 2
#define MORE_FRAGMENTS_OR_OFFSET 0x3fff

struct vlan_tag {
	__be16 control;
	__be16 protocol;
};

// The socket of each queue.
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, MAX_QUEUES);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, ROCE_STATS);
	__type(key, __u32);
	__type(value, __u64);
} stats SEC(".maps");

static __always_inline void count(enum roce_stat what)
{
	__u32 key = what;
	__u64 *value = bpf_map_lookup_elem(&stats, &key);

	if (value)
		*value += 1;
}

// The packet between `at` and `end`; each step is checked against `end`, as the verifier wants it.
struct cursor {
	void *at;
	void *end;
};

// The next `len` bytes, or nothing when the frame ends before.
static __always_inline void *take(struct cursor *cursor, __u32 len)
{
	void *taken = cursor->at;

	if (taken + len > cursor->end)
		return NULL;
	cursor->at = taken + len;
	return taken;
}

static __always_inline bool is_vlan(__be16 protocol)
{
	return protocol == bpf_htons(ETH_P_8021Q) || protocol == bpf_htons(ETH_P_8021AD);
}

// Walks over an IPv4 header. ROCE_REDIRECTED when UDP follows.
static __always_inline enum roce_stat walk_ipv4(struct cursor *cursor)
{
	struct iphdr *ip = take(cursor, sizeof(*ip));

	if (!ip)
		return ROCE_SHORT;
	if (ip->version != 4 || ip->ihl < 5 || ip->protocol != IPPROTO_UDP)
		return ROCE_PASSED;
	if (ip->ihl > 5)
		return ROCE_OPTIONS;
	if (ip->frag_off & bpf_htons(MORE_FRAGMENTS_OR_OFFSET))
		return ROCE_FRAGMENT;
	return ROCE_REDIRECTED;
}

// Walks over an IPv6 header. ROCE_REDIRECTED when UDP follows.
static __always_inline enum roce_stat walk_ipv6(struct cursor *cursor)
{
	struct ipv6hdr *ip = take(cursor, sizeof(*ip));

	if (!ip)
		return ROCE_SHORT;
	if (ip->version != 6)
		return ROCE_PASSED;
	switch (ip->nexthdr) {
	case IPPROTO_UDP:
		return ROCE_REDIRECTED;
	case IPPROTO_FRAGMENT:
		return ROCE_FRAGMENT;
	case IPPROTO_HOPOPTS:
	case IPPROTO_ROUTING:
	case IPPROTO_AH:
	case IPPROTO_DSTOPTS:
	case IPPROTO_MH:
		return ROCE_EXTENSION;
	default:
		return ROCE_PASSED;
	}
}

// ROCE_REDIRECTED for RoCEv2, else why the frame is none.
static __always_inline enum roce_stat judge(struct xdp_md *ctx)
{
	struct cursor cursor = { (void *)(long)ctx->data, (void *)(long)ctx->data_end };
	enum roce_stat verdict;
	struct ethhdr *ethernet;
	struct udphdr *udp;
	__be16 protocol;

	ethernet = take(&cursor, sizeof(*ethernet));
	if (!ethernet)
		return ROCE_SHORT;
	protocol = ethernet->h_proto;

#pragma unroll
	for (int i = 0; i < MAX_VLAN_TAGS; i++) {
		struct vlan_tag *tag;

		if (!is_vlan(protocol))
			break;
		tag = take(&cursor, sizeof(*tag));
		if (!tag)
			return ROCE_SHORT;
		protocol = tag->protocol;
	}
	if (is_vlan(protocol))
		return ROCE_VLAN_TAGS;

	if (protocol == bpf_htons(ETH_P_IP))
		verdict = walk_ipv4(&cursor);
	else if (protocol == bpf_htons(ETH_P_IPV6))
		verdict = walk_ipv6(&cursor);
	else
		return ROCE_PASSED;
	if (verdict != ROCE_REDIRECTED)
		return verdict;

	udp = take(&cursor, sizeof(*udp));
	if (!udp)
		return ROCE_SHORT;
	if (udp->dest != bpf_htons(ROCE_PORT))
		return ROCE_PASSED;
	return take(&cursor, BTH_LEN) ? ROCE_REDIRECTED : ROCE_SHORT;
}

static __always_inline int redirect(struct xdp_md *ctx)
{
	enum roce_stat verdict = judge(ctx);
	int action = XDP_PASS;

	if (verdict == ROCE_REDIRECTED) {
		action = bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);
		if (action != XDP_REDIRECT)
			verdict = ROCE_NO_SOCKET;
	}
	count(verdict);
	return action;
}

// For kernels before 5.18, and drivers that know no frames in several buffers.
SEC("xdp")
int redirect_linear(struct xdp_md *ctx)
{
	return redirect(ctx);
}

SEC("xdp.frags")
int redirect_frags(struct xdp_md *ctx)
{
	return redirect(ctx);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
