/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the program counts, by index in the map `stats`. The names without ROCE_, in lower case and
 * in this order, are also those of crates/net/src/af_xdp/program.rs; a test compares them. */
#ifndef REDIRECT_ROCE_H
#define REDIRECT_ROCE_H

enum roce_stat {
	ROCE_REDIRECTED, /* RoCEv2, given to the socket of its queue */
	ROCE_NO_SOCKET, /* RoCEv2, but its queue has no socket: passed */
	ROCE_PASSED, /* other traffic: passed */
	ROCE_OPTIONS, /* UDP behind IPv4 options: passed */
	ROCE_FRAGMENT, /* a fragment of UDP over IPv4, or any of IPv6: passed */
	ROCE_EXTENSION, /* an IPv6 extension header: passed */
	ROCE_VLAN_TAGS, /* more than two VLAN tags: passed */
	ROCE_SHORT, /* ends inside a header, or RoCEv2 without a whole BTH: passed */
	ROCE_OWNED, /* ARP, neighbour discovery, ICMP of an owned address: to the socket */
	ROCE_ANNOUNCED, /* a neighbour says unasked what its link address is: passed */
	ROCE_STATS, /* how many there are */
};

#endif
