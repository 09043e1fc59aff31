// SPDX-License-Identifier: MIT OR Apache-2.0
//
// RoCEv2 to the AF_XDP socket of the frame's queue, everything else to the kernel.
//
// RoCEv2 is UDP to port 4791 over IPv4 without options or over IPv6 without extension headers,
// unfragmented, behind at most two VLAN tags. Where the adapter has addresses of its own, which the
// kernel does not have, ARP, neighbour discovery and ICMP of these go to the socket too, if they
// are on its VLAN. No frame is changed and none is dropped here: what is broken goes to the kernel,
// which counts it.

#include <linux/bpf.h>
#include <linux/icmpv6.h>
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
#define MAX_OWNED 8
#define VLAN_ID 0x0fff
// Of a frame that is on no VLAN of an owned address: it has two tags.
#define NO_VLAN 0xffff
#define ARP_ETHERNET 1
#define NEIGHBOR_SOLICITATION 135
#define NEIGHBOR_ADVERTISEMENT 136

struct vlan_tag {
	__be16 control;
	__be16 protocol;
};

// ARP of IPv4 addresses over Ethernet.
struct arp {
	__be16 hardware;
	__be16 protocol;
	__u8 hardware_len;
	__u8 protocol_len;
	__be16 operation;
	__u8 sender_mac[ETH_ALEN];
	__u8 sender[4];
	__u8 target_mac[ETH_ALEN];
	__u8 target[4];
};

// Neighbour solicitation or advertisement, without its options.
struct neighbor_message {
	struct icmp6hdr icmp;
	struct in6_addr target;
};

// An address of the adapter, and the VLAN that it is on, 0 without.
struct owned_address {
	struct in6_addr address;
	__u32 vlan;
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

// Addresses that the adapter has and the kernel has not. An IPv4 address a.b.c.d is ::ffff:a.b.c.d.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_OWNED);
	__type(key, struct owned_address);
	__type(value, __u8);
} owned SEC(".maps");

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

// Goes past the next `len` bytes, which then may be read. Says whether the frame has them. (Not by
// a pointer that may be NULL: for that one is compared with 0, which the verifier allows with
// CAP_PERFMON only, and nothing else here takes that.)
static __always_inline bool pass(struct cursor *cursor, __u32 len)
{
	if (cursor->at + len > cursor->end)
		return false;
	cursor->at += len;
	return true;
}

static __always_inline bool is_vlan(__be16 protocol)
{
	return protocol == bpf_htons(ETH_P_8021Q) || protocol == bpf_htons(ETH_P_8021AD);
}

static __always_inline bool is_owned(const struct in6_addr *address, __u32 vlan)
{
	struct owned_address key = { .vlan = vlan };

	__builtin_memcpy(&key.address, address, sizeof(key.address));
	return bpf_map_lookup_elem(&owned, &key) != NULL;
}

static __always_inline bool is_owned_ipv4(const void *address, __u32 vlan)
{
	struct owned_address key = { .vlan = vlan };

	key.address.in6_u.u6_addr16[5] = 0xffff;
	__builtin_memcpy(&key.address.in6_u.u6_addr32[3], address, 4);
	return bpf_map_lookup_elem(&owned, &key) != NULL;
}

// ROCE_OWNED when an owned address is asked for, or somebody says that he has it; ROCE_ANNOUNCED
// when a neighbour says unasked where he is.
static __always_inline enum roce_stat judge_arp(struct cursor *cursor, __u32 vlan)
{
	struct arp *arp = cursor->at;

	if (!pass(cursor, sizeof(*arp)))
		return ROCE_SHORT;
	if (arp->hardware != bpf_htons(ARP_ETHERNET) || arp->protocol != bpf_htons(ETH_P_IP) ||
	    arp->hardware_len != ETH_ALEN || arp->protocol_len != 4)
		return ROCE_PASSED;
	if (is_owned_ipv4(arp->target, vlan) || is_owned_ipv4(arp->sender, vlan))
		return ROCE_OWNED;
	if (!__builtin_memcmp(arp->sender, arp->target, 4))
		return ROCE_ANNOUNCED;
	return ROCE_PASSED;
}

// The same for ICMPv6 behind `ip`.
static __always_inline enum roce_stat judge_icmpv6(struct cursor *cursor, struct ipv6hdr *ip,
							__u32 vlan)
{
	struct neighbor_message *message;

	if (is_owned(&ip->daddr, vlan))
		return ROCE_OWNED;
	message = cursor->at;
	if (!pass(cursor, sizeof(*message)))
		return ROCE_PASSED;
	if (message->icmp.icmp6_type != NEIGHBOR_SOLICITATION &&
	    message->icmp.icmp6_type != NEIGHBOR_ADVERTISEMENT)
		return ROCE_PASSED;
	if (is_owned(&message->target, vlan))
		return ROCE_OWNED;
	// To a group, nobody has asked for it.
	if (message->icmp.icmp6_type == NEIGHBOR_ADVERTISEMENT && ip->daddr.in6_u.u6_addr8[0] == 0xff)
		return ROCE_ANNOUNCED;
	return ROCE_PASSED;
}

// Walks over an IPv4 header. ROCE_REDIRECTED when UDP follows.
static __always_inline enum roce_stat walk_ipv4(struct cursor *cursor, __u32 vlan)
{
	struct iphdr *ip = cursor->at;

	if (!pass(cursor, sizeof(*ip)))
		return ROCE_SHORT;
	if (ip->version != 4 || ip->ihl < 5)
		return ROCE_PASSED;
	if (ip->protocol != IPPROTO_UDP)
		return ip->protocol == IPPROTO_ICMP && ip->ihl == 5 &&
				       !(ip->frag_off & bpf_htons(MORE_FRAGMENTS_OR_OFFSET)) &&
				       is_owned_ipv4(&ip->daddr, vlan) ?
			       ROCE_OWNED :
			       ROCE_PASSED;
	if (ip->ihl > 5)
		return ROCE_OPTIONS;
	if (ip->frag_off & bpf_htons(MORE_FRAGMENTS_OR_OFFSET))
		return ROCE_FRAGMENT;
	return ROCE_REDIRECTED;
}

// Walks over an IPv6 header. ROCE_REDIRECTED when UDP follows.
static __always_inline enum roce_stat walk_ipv6(struct cursor *cursor, __u32 vlan)
{
	struct ipv6hdr *ip = cursor->at;

	if (!pass(cursor, sizeof(*ip)))
		return ROCE_SHORT;
	if (ip->version != 6)
		return ROCE_PASSED;
	switch (ip->nexthdr) {
	case IPPROTO_UDP:
		return ROCE_REDIRECTED;
	case IPPROTO_ICMPV6:
		return judge_icmpv6(cursor, ip, vlan);
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

// ROCE_REDIRECTED for RoCEv2, ROCE_OWNED for what else the socket gets, else why it does not.
static __always_inline enum roce_stat judge(struct xdp_md *ctx)
{
	struct cursor cursor = { (void *)(long)ctx->data, (void *)(long)ctx->data_end };
	enum roce_stat verdict;
	struct ethhdr *ethernet;
	struct udphdr *udp;
	__be16 protocol;
	__u32 vlan = 0;

	ethernet = cursor.at;
	if (!pass(&cursor, sizeof(*ethernet)))
		return ROCE_SHORT;
	protocol = ethernet->h_proto;

#pragma unroll
	for (int i = 0; i < MAX_VLAN_TAGS; i++) {
		struct vlan_tag *tag;

		if (!is_vlan(protocol))
			break;
		tag = cursor.at;
		if (!pass(&cursor, sizeof(*tag)))
			return ROCE_SHORT;
		vlan = i == 0 ? bpf_ntohs(tag->control) & VLAN_ID : NO_VLAN;
		protocol = tag->protocol;
	}
	if (is_vlan(protocol))
		return ROCE_VLAN_TAGS;

	if (protocol == bpf_htons(ETH_P_IP))
		verdict = walk_ipv4(&cursor, vlan);
	else if (protocol == bpf_htons(ETH_P_IPV6))
		verdict = walk_ipv6(&cursor, vlan);
	else if (protocol == bpf_htons(ETH_P_ARP))
		verdict = judge_arp(&cursor, vlan);
	else
		return ROCE_PASSED;
	if (verdict != ROCE_REDIRECTED)
		return verdict;

	udp = cursor.at;
	if (!pass(&cursor, sizeof(*udp)))
		return ROCE_SHORT;
	if (udp->dest != bpf_htons(ROCE_PORT))
		return ROCE_PASSED;
	return pass(&cursor, BTH_LEN) ? ROCE_REDIRECTED : ROCE_SHORT;
}

static __always_inline int redirect(struct xdp_md *ctx)
{
	enum roce_stat verdict = judge(ctx);
	int action = XDP_PASS;

	if (verdict == ROCE_REDIRECTED || verdict == ROCE_OWNED) {
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
