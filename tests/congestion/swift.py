#!/usr/bin/env python3
"""Swift, written down a second time.

From algorithm 1 and section 3 of Kumar et al., "Swift: Delay is Simple and Effective for
Congestion Control in the Datacenter" (SIGCOMM 2020). It knows nothing of roxe's code and goes about
it differently: one step says what the paper's listing would do to the window, a second one whether
it may, and times are in nanoseconds.

Reads sequences, one a line, as JSON: parameters, and events in the order of time.

    {"line_rate": Mb/s, "packet": bytes, "ai": ..., ..., "events": [["ack", ns, delay, packets],
     ["lost", ns], ["timeout", ns], ...]}

Writes for each a line of JSON: [window in packets, rate in Mb/s] after each event.
"""

import json
import math
import sys


def target_delay(p, cwnd):
    small, large = p["fs_min_cwnd"] ** -0.5, p["fs_max_cwnd"] ** -0.5
    scaling = 0.0
    if small > large:
        alpha = p["fs_range"] / (small - large)
        beta = -alpha / math.sqrt(p["fs_max_cwnd"])
        scaling = max(0.0, min(alpha / math.sqrt(cwnd) + beta, p["fs_range"]))
    return p["base_target"] + p["hops"] * p["h"] + scaling


class Sender:
    def __init__(self, p):
        self.p = p
        bytes_per_ns = p["line_rate"] / 8000
        in_target = bytes_per_ns * (p["base_target"] + p["hops"] * p["h"]) / p["packet"]
        self.cwnd = min(max(in_target, p["min_cwnd"]), p["max_cwnd"])
        self.rtt = None
        self.t_last_decrease = None
        self.retransmit_cnt = 0

    def can_decrease(self, now):
        if self.t_last_decrease is None:
            return True
        return now - self.t_last_decrease >= (self.rtt or 0)

    def wanted(self, kind, now, rest):
        """What becomes of the window, and whether that is a decrease that has to be allowed."""
        p = self.p
        if kind == "lost":
            self.retransmit_cnt = 0
            return self.cwnd * (1 - p["max_mdf"]), True
        if kind == "timeout":
            self.retransmit_cnt += 1
            if self.retransmit_cnt >= p["retx_reset_threshold"]:
                self.t_last_decrease = now
                return p["min_cwnd"], False
            return self.cwnd * (1 - p["max_mdf"]), True
        delay, num_acked = rest
        self.retransmit_cnt = 0
        self.rtt = delay
        target = target_delay(p, self.cwnd)
        if delay < target:
            per_packet = p["ai"] / self.cwnd if self.cwnd >= 1 else p["ai"]
            return self.cwnd + per_packet * num_acked, False
        factor = 1 - p["beta"] * (delay - target) / delay
        return self.cwnd * max(factor, 1 - p["max_mdf"]), True

    def step(self, kind, now, *rest):
        cwnd, is_decrease = self.wanted(kind, now, rest)
        if is_decrease:
            if not self.can_decrease(now):
                return
            self.t_last_decrease = now
        self.cwnd = min(max(cwnd, self.p["min_cwnd"]), self.p["max_cwnd"])

    def rate(self):
        if self.rtt is None:
            return self.p["line_rate"]
        return min(self.cwnd * self.p["packet"] * 8000 / self.rtt, self.p["line_rate"])


for line in sys.stdin:
    sequence = json.loads(line)
    sender = Sender(sequence)
    states = []
    for event in sequence["events"]:
        sender.step(*event)
        states.append([sender.cwnd, sender.rate()])
    print(json.dumps(states))
