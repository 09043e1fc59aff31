#!/usr/bin/env python3
"""TIMELY, written down a second time.

From algorithm 1 of Mittal et al., "TIMELY: RTT-based Congestion Control for the Datacenter"
(SIGCOMM 2015), with rates in Mb/s and times in nanoseconds. It knows nothing of roxe's code and
goes about it differently: the averages of all completions are worked out first, as a weighted sum
of all differences, and then the rates.

Reads sequences, one a line, as JSON: parameters, and the round trips of completions.

    {"line_rate": Mb/s, "alpha": ..., "beta": ..., "delta": Mb/s, "t_low": ns, "t_high": ns,
     "min_rtt": ns, "n": ..., "hai_thresh": ..., "min_rate": Mb/s, "rtts": [ns, ...]}

Writes for each a line of JSON: the rate in Mb/s after each completion.
"""

import json
import sys


def gradients(p):
    rtts = p["rtts"]
    differences = [0] + [new - old for old, new in zip(rtts, rtts[1:])]
    weights = [p["alpha"] * (1 - p["alpha"]) ** age for age in range(len(rtts))]
    for last in range(len(rtts)):
        newest_first = reversed(differences[: last + 1])
        average = sum(weight * diff for weight, diff in zip(weights, newest_first))
        yield average / p["min_rtt"]


def rates(p):
    rate = p["line_rate"]
    in_a_row = 0
    for rtt, gradient in zip(p["rtts"], gradients(p)):
        if rtt < p["t_low"]:
            in_a_row = 0
            rate += p["delta"]
        elif rtt > p["t_high"]:
            in_a_row = 0
            rate *= 1 - p["beta"] * (1 - p["t_high"] / rtt)
        elif gradient > 0:
            in_a_row = 0
            rate *= 1 - p["beta"] * gradient
        else:
            in_a_row += 1
            rate += p["delta"] * (p["n"] if in_a_row >= p["hai_thresh"] else 1)
        rate = min(max(rate, p["min_rate"]), p["line_rate"])
        yield rate


for line in sys.stdin:
    print(json.dumps(list(rates(json.loads(line)))))
