/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the program counts, by index in the map `marks`. The names without MARK_, in lower case and
 * in this order, are also those of crates/net/src/marker.rs; a test compares them. */
#ifndef MARK_CE_H
#define MARK_CE_H

enum mark_stat {
	MARK_PASSED, /* not chosen: as it came */
	MARK_MARKED, /* chosen: it leaves with CE */
	MARK_NOT_ECT, /* chosen, but its sender did not say that it may be marked: as it came */
	MARK_OVER, /* the queue is full: it is left to the real one to drop it */
	MARK_STATS, /* how many there are */
};

#endif
