#!/usr/bin/env python3
"""DCQCN's reaction point, written down a second time.

From the formulas of Zhu et al., "Congestion Control for Large-Scale RDMA Deployments" (SIGCOMM
2015, section 5), with the parameters of mlx5. It knows nothing of roxe's code and goes about it
differently: every timer is an event of its own, one after the other.

Reads sequences, one a line, as JSON: parameters, and events in the order of time.

    {"line_rate": bits/s, "form": "paper" | "mlx5", "g": ..., ..., "events": [["cnp", ns],
     ["sent", ns, bytes], ["look", ns], ...]}

Writes for each a line of JSON: [current rate, target rate] in bits/s after each event.
"""

import json
import sys

NEVER = float("inf")


class ReactionPoint:
    def __init__(self, p):
        self.p = p
        self.top = min(p["line_rate"], p["max_rate"] or p["line_rate"])
        self.current = self.target = self.top
        self.alpha = None
        self.alpha_timer = self.increase_timer = self.cut_timer = NEVER
        self.cnp_in_period = False
        self.last_cut = None
        self.bytes = self.by_timer = self.by_bytes = 0
        self.increased = True

    # --- what the timers do

    def alpha_period_ends(self):
        g = self.p["g"]
        if self.cnp_in_period:
            self.alpha = (1 - g) * self.alpha + g
        else:
            self.alpha = (1 - g) * self.alpha
        self.cnp_in_period = False
        self.alpha_timer += self.p["alpha_period"]

    def increase_timer_ends(self):
        self.by_timer += 1
        self.increase_timer += self.p["increase_period"]
        if self.p["clamp_ati"]:
            self.increased = True
        self.increase()

    def cut(self, now):
        if self.p["clamp"] or self.increased:
            self.target = self.current
        cut = self.alpha * 2 ** (10 - self.p["gd"])
        self.current *= max(1 - cut, self.p["min_dec_fac"])
        self.current = min(max(self.current, self.p["min_rate"]), self.top)
        if self.p["form"] == "paper":
            self.alpha = (1 - self.p["g"]) * self.alpha + self.p["g"]
            self.alpha_timer = now + self.p["alpha_period"]
        self.last_cut = now
        self.cut_timer = NEVER
        self.increase_timer = now + self.p["increase_period"]
        self.bytes = self.by_timer = self.by_bytes = 0
        self.increased = False

    # --- the three ways up

    def increase(self):
        f = self.p["threshold"]
        low, high = sorted([self.by_timer, self.by_bytes])
        if self.p["byte_reset"] == 0:
            low = high = self.by_timer
        if high < f:
            pass  # fast recovery
        elif low > f:
            steps = low - f if self.p["form"] == "paper" else 1
            self.target += steps * self.p["hai_rate"]
        else:
            self.target += self.p["ai_rate"]
        self.target = min(self.target, self.top)
        self.current = min((self.current + self.target) / 2, self.top)

    # --- what happens

    def run_until(self, now):
        while True:
            nearest = min(self.cut_timer, self.alpha_timer, self.increase_timer)
            if nearest > now:
                return
            # At one moment alpha is first, as the cut uses it, then the cut.
            if self.alpha_timer == nearest:
                self.alpha_period_ends()
            elif self.cut_timer == nearest:
                self.cut(nearest)
            else:
                self.increase_timer_ends()

    def cnp(self, now):
        if self.alpha is None:
            self.alpha = self.p["initial_alpha"]
            self.alpha_timer = now + self.p["alpha_period"]
            if self.p["first_cnp_rate"]:
                self.current = min(max(self.p["first_cnp_rate"], self.p["min_rate"]), self.top)
        elif self.p["form"] == "mlx5":
            self.cnp_in_period = True
        wait = self.p["cut_period"]
        if self.last_cut is None or now - self.last_cut >= wait:
            self.cut(now)
        elif self.cut_timer == NEVER:
            self.cut_timer = self.last_cut + wait

    def sent(self, size):
        if self.alpha is None or self.p["byte_reset"] == 0:
            return
        if self.current >= self.p["line_rate"] and self.cut_timer == NEVER:
            return  # nothing is counted at the rate of the line
        self.bytes += size
        while self.bytes >= self.p["byte_reset"]:
            self.bytes -= self.p["byte_reset"]
            self.by_bytes += 1
            self.increased = True
            self.increase()


def main():
    for line in sys.stdin:
        sequence = json.loads(line)
        point = ReactionPoint(sequence)
        rates = []
        for kind, now, *rest in sequence["events"]:
            point.run_until(now)
            if kind == "cnp":
                point.cnp(now)
            elif kind == "sent":
                point.sent(*rest)
            rates.append([point.current, point.target])
        print(json.dumps(rates))


main()
