# SPDX-License-Identifier: Apache-2.0
"""Statistics of the ladder: reads RESULTS/RUNG.csv.gz, compares placements with the baseline, and orders them.

It uses the standard library alone. check_page.py computes the same numbers with scipy, and shares no code with this file.

The bootstrap can be repeated in any language. Rung k of protocol.json, counted from 0, has a SplitMix64 generator with the state
bootstrap.seed * 2^32 + k. The judged seeds that all placements have are sorted; a sample of n seeds takes n numbers u of 64 bits
in turn, each of which draws the seed at position floor(u * n / 2^64). All placements have the same samples. An interval of m sorted
values has its ends at positions c and m - 1 - c, counted from 0, where c = floor((1 - interval) / 2 * m).
"""
import bisect
import collections
import csv
import functools
import gzip
import math
import os
import re
import statistics

from tasks import Random


def loss_of(run):
    """Returns the validation loss of a run, or infinity if it diverged."""
    return float(run["validation"]) if run["status"] == "finished" else math.inf


def read_runs(results, rung):
    """Returns the runs of a rung: the judged ones as {placement: {seed: (loss, collapsed)}}, the rate of each placement's judged
    runs, and the choosing ones as {placement: {rate: [loss]}}."""
    judged, rates = collections.defaultdict(dict), {}
    choosing = collections.defaultdict(lambda: collections.defaultdict(list))
    with gzip.open(os.path.join(results, rung + ".csv.gz"), "rt", encoding="utf-8", newline="") as file:
        for run in csv.DictReader(file):
            name, rate = run["placement"], float(run["rate"])
            if run["part"] == "judged":
                judged[name][int(run["seed"])] = loss_of(run), run["collapsed"] == "1"
                rates[name] = rate
            else:
                choosing[name][rate].append(loss_of(run))
    return dict(judged), rates, choosing


def slopes(choosing, rate):
    """Returns the mean choosing loss at half and at twice the rate less that at the rate: None if the rate was not trained,
    "diverged" if one of the runs diverged."""
    found = []
    for other in (rate / 2, rate * 2):
        near = next((losses for tried, losses in choosing.items() if math.isclose(tried, other, rel_tol=1e-3)), None)
        if near is None:
            found.append(None)
        elif math.inf in near or math.inf in choosing[rate]:
            found.append("diverged")
        else:
            found.append(statistics.fmean(near) - statistics.fmean(choosing[rate]))
    return found


# Tests of the difference between two placements.

def t_tail(t, degrees):
    """Returns the probability that Student's t exceeds `t`, by Simpson's rule over the angle atan(t / sqrt(degrees))."""
    begin, steps = math.atan(t / math.sqrt(degrees)), 2000
    width = (math.pi / 2 - begin) / steps
    area = sum((1 if i in (0, steps) else 4 if i % 2 else 2) * math.cos(begin + i * width) ** (degrees - 1)
               for i in range(steps + 1)) * width / 3
    return area * math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(math.pi)


@functools.lru_cache(maxsize=None)
def t_quantile(tail, degrees):
    """Returns the t that is exceeded with this probability."""
    low, high = 0.0, 1e4
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if t_tail(middle, degrees) > tail else (low, middle)
    return low


def sign_flip_p(differences):
    """Returns the exact p-value of the mean of differences whose signs are arbitrary. Sums of half of the differences are joined by
    bisection, so that 40 differences take 2^20 steps."""
    threshold = abs(sum(differences)) - 1e-9 * sum(map(abs, differences))
    half = len(differences) // 2
    # An assignment of signs counts as much as its opposite, so the first sign is fixed.
    one, other = [differences[0]], [0.0]
    for difference in differences[1:half + 1]:
        one = [s + difference for s in one] + [s - difference for s in one]
    for difference in differences[half + 1:]:
        other = [s + difference for s in other] + [s - difference for s in other]
    other.sort()
    count = sum(len(other) - bisect.bisect_left(other, threshold - s) + bisect.bisect_right(other, -threshold - s)
                if threshold > 0 else len(other) for s in one)
    return count / (len(one) * len(other))


def sign_p(lower, higher):
    """Returns the exact p-value of so many lower and higher runs."""
    n, k = lower + higher, min(lower, higher)
    return min(1.0, 2 * sum(math.comb(n, i) for i in range(k + 1)) / 2**n)


def difference(runs, reference, margin):
    """Compares the runs of a placement with those of the baseline, paired by seed."""
    pairs = [(runs[seed], reference[seed]) for seed in sorted(runs) if seed in reference]
    lower = sum(a[0] < b[0] for a, b in pairs)
    higher = sum(a[0] > b[0] for a, b in pairs)
    found = {"lower": lower, "higher": higher, "mean": None, "low": None, "high": None, "p": None, "p_equal": None}
    if any(math.inf in (a[0], b[0]) for a, b in pairs):
        return dict(found, test="signs", p=sign_p(lower, higher))
    differences = [a[0] - b[0] for a, b in pairs]
    n, mean = len(differences), statistics.fmean(differences)
    found.update(mean=mean, test="t", p=1.0 if n > 1 and mean == 0 else None)
    collapsed = any(a[1] or b[1] for a, b in pairs)
    if n > 1 and max(differences) > min(differences):
        error = statistics.stdev(differences) / math.sqrt(n)
        half = t_quantile(0.025, n - 1) * error
        found.update(low=mean - half, high=mean + half, p=2 * t_tail(abs(mean) / error, n - 1))
        if not collapsed:
            found["p_equal"] = t_tail((margin - abs(mean)) / error, n - 1)
    if collapsed:
        found.update(test="sign flips", p=sign_flip_p(differences))
    return found


def holm(p_values):
    """Returns the p-values after Holm's correction, by the same keys."""
    adjusted, largest = {}, 0.0
    for tried, (key, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        largest = max(largest, min(1.0, (len(p_values) - tried) * p))
        adjusted[key] = largest
    return adjusted


def differences_of(protocol, judged):
    """Returns each placement's difference from the baseline, with its outcome: better, worse, equal or undecided."""
    rule = protocol["families"]
    found = {name: difference(runs, judged[rule["baseline"]], rule["margin"])
             for name, runs in judged.items() if name != rule["baseline"]}
    for p, adjusted in (("p", "p_holm"), ("p_equal", "p_equal_holm")):
        corrected = holm({name: pair[p] for name, pair in found.items() if pair[p] is not None})
        for name, pair in found.items():
            pair[adjusted] = corrected.get(name)
    for name, pair in found.items():
        pair["diverged"] = sum(loss == math.inf for loss, _ in judged[name].values())
        pair["runs"] = len(judged[name])
        sign = pair["mean"] if pair["mean"] is not None else pair["higher"] - pair["lower"]
        pair["outcome"] = "undecided"
        if pair["p_holm"] is not None and pair["p_holm"] < rule["level"]:
            pair["outcome"] = "worse" if sign > 0 else "better"
        if pair["p_equal_holm"] is not None and pair["p_equal_holm"] < rule["level"]:
            pair["outcome"] = "equal"
        if pair["outcome"] == "better" and pair["runs"] - pair["diverged"] < 2:
            pair["outcome"] = "undecided"
    return found


def disagreements(found, reported):
    """Returns the numbers of plumb's report that are others here. From 21 seeds on, plumb draws 100,000 sign flips and this file
    counts all: Holm's p-values may then differ by five standard deviations."""
    sampled = any(pair["test"] == "sign flips" and pair["lower"] + pair["higher"] > 20 for pair in found.values())
    wrong = []
    for name in sorted(set(found) | set(reported)):
        if name not in found or name not in reported:
            wrong.append(f"{name} is missing")
            continue
        for key, theirs in reported[name].items():
            ours = found[name]["p_equal_holm" if key == "p_equal" else key]
            if ours is None or theirs is None or isinstance(theirs, str):
                same = ours == theirs
            else:
                same = abs(ours - theirs) <= 1e-6 + 1e-5 * abs(theirs)
                if key == "p_holm" and sampled:
                    same = abs(ours - theirs) <= 2e-5 * len(found) + 5 * math.sqrt(theirs * len(found) / 1e5)
            if not same:
                wrong.append(f"{name}: {key} is {ours} here, {theirs} in plumb's report")
    return wrong


# The order of placements, and how well it agrees between rungs.

def standing(losses):
    """Returns a key that orders placements: by the share of diverged runs, then by the mean of the others."""
    finished = [loss for loss in losses if loss < math.inf]
    return len(losses) - len(finished), statistics.fmean(finished) if finished else 0.0


def ranks(values):
    """Returns the rank of each value from 1, ties with their mean."""
    order = sorted(range(len(values)), key=values.__getitem__)
    found, first = [0.0] * len(values), 0
    while first < len(order):
        last = first
        while last + 1 < len(order) and values[order[last + 1]] == values[order[first]]:
            last += 1
        for i in order[first:last + 1]:
            found[i] = (first + last) / 2 + 1
        first = last + 1
    return found


def spearman(a, b):
    """Returns the correlation of two lists of ranks, or None if one of them is constant."""
    middle = (len(a) + 1) / 2
    product = sum((x - middle) * (y - middle) for x, y in zip(a, b))
    scale = math.sqrt(sum((x - middle) ** 2 for x in a) * sum((y - middle) ** 2 for y in b))
    return product / scale if scale else None


class Standings:
    """Standings of a rung's placements with the runs as they are, and with each bootstrap sample of seeds. Immutable."""

    def __init__(self, protocol, rung, judged):
        rule = protocol["bootstrap"]
        seeds = sorted(set.intersection(*(set(runs) for runs in judged.values())))
        index = next(i for i, other in enumerate(protocol["rungs"]) if other["name"] == rung)
        random = Random(rule["seed"] * 2**32 + index)
        samples = [seeds] + [[seeds[random.below(len(seeds))] for _ in seeds] for _ in range(rule["samples"])]
        self.names, self.interval, self.cache = set(judged), rule["interval"], {}
        self.values = [{name: standing([runs[seed][0] for seed in sample]) for name, runs in judged.items()} for sample in samples]

    def ranks(self, names):
        """Returns, for the runs and for each sample, the ranks of these placements among each other."""
        names = tuple(sorted(names))
        if names not in self.cache:
            self.cache[names] = [ranks([values[name] for name in names]) for values in self.values]
        return self.cache[names]

    def places(self):
        """Returns each placement's rank with its interval."""
        columns = zip(*self.ranks(self.names))
        return {name: (own[0], *percentiles(self.interval, own[1:])) for name, own in zip(sorted(self.names), columns)}


class Outside:
    """Standings of placements in a published table, which has one loss for each: all samples are the same. Immutable."""

    def __init__(self, protocol, losses):
        self.losses, self.names = losses, set(losses)
        self.samples, self.interval = protocol["bootstrap"]["samples"], protocol["bootstrap"]["interval"]

    def ranks(self, names):
        return [ranks([self.losses[name] for name in sorted(names)])] * (1 + self.samples)


def percentiles(interval, values):
    """Returns the ends of the interval that has this share of the values in its middle."""
    values = sorted(values)
    cut = int((1 - interval) / 2 * len(values))
    return values[cut], values[len(values) - 1 - cut]


def correlation(a, b):
    """Returns Spearman's correlation of two rungs over their common placements, with its interval, or None of fewer than four."""
    names = a.names & b.names
    if len(names) < 4:
        return None
    found = [spearman(x, y) for x, y in zip(a.ranks(names), b.ranks(names))]
    sampled = [rho for rho in found[1:] if rho is not None]
    if found[0] is None or not sampled:
        return None
    low, high = percentiles(a.interval, sampled)
    return {"placements": len(names), "rho": found[0], "low": low, "high": high}


def accepted_hashes(protocol, own, rung):
    """Returns the hashes of the protocols whose results of a rung are valid: `own`, and earlier versions with the same rung."""
    return {own, *(earlier["sha256"] for earlier in protocol["earlier"] if rung in earlier["rungs"])}


def pick(protocol, results, texts):
    """Returns the placements for dear rungs by the protocol's rule. Fails if a rung with all placements has no results."""
    rule = protocol["picked"]
    first, own_ranks = collections.Counter(), collections.defaultdict(list)
    for rung in protocol["rungs"]:
        if rung.get("placements", "all") != "all":
            continue
        judged = read_runs(results, rung["name"])[0]
        for name, (rank, low, _) in Standings(protocol, rung["name"], judged).places().items():
            first[name] += low <= 1
            own_ranks[name].append(rank)

    def arxiv(name):
        return max(re.findall(r"arXiv:(\d{4}\.\d{5})", texts.get(name, "")), default="")

    orders = {
        "newest": sorted((name for name in own_ranks if arxiv(name)), key=lambda name: (arxiv(name), name), reverse=True),
        "best": sorted(own_ranks, key=lambda name: (-first[name], statistics.fmean(own_ranks[name]), name)),
        "moved": sorted(own_ranks, key=lambda name: (min(own_ranks[name]) - max(own_ranks[name]), name))}
    picked = {"always": list(rule["always"])}
    for group, order in orders.items():
        taken = {name for names in picked.values() for name in names}
        picked[group] = [name for name in order if name not in taken][:rule[group]]
    return picked


def classes(protocol, outcomes):
    """Returns the classes of a placement from its outcomes by rung."""
    axes = collections.defaultdict(list)
    for rung in protocol["rungs"]:
        for axis in rung.get("axes", []):
            if rung["name"] in outcomes:
                axes[axis].append(outcomes[rung["name"]])
    on_axes = sum(axes.values(), [])
    lost = ("worse", "equal")
    base = outcomes.get("base")
    found = []
    if on_axes and all(outcome == "better" for outcome in on_axes):
        found.append("helps everywhere")
    if on_axes and all(outcome in lost for outcome in on_axes):
        found.append("never")
    if base == "better" and axes["tokens"][-1] in lost:
        found.append("only early")
    for axis, word in (("depth", "only deep"), ("width", "only wide")):
        if base in lost and axes[axis][-1] == "better":
            found.append(word)
    if base == "better" and outcomes.get("warm_up") in lost:
        found.append("only without warm-up")
    return found or ["undecided"]
