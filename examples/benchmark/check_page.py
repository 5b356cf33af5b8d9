#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Recomputes the results of the ladder from its CSV files, and writes the tables of its page to stdout: check_page.py RESULTS

It shares no code with plumb, and fails if a difference from the baseline that plumb reported (RESULTS/RUNG.json) is another
number here.
"""
import collections
import csv
import gzip
import itertools
import json
import math
import os
import random
import re
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def loss_of(run):
    """Returns the validation loss of a run, or infinity if it diverged."""
    return float(run["validation"]) if run["status"] == "finished" else math.inf


def read_judged(results, rung):
    """Returns the judged runs of a rung: {placement: {seed: (loss, collapsed)}}."""
    runs = collections.defaultdict(dict)
    with gzip.open(os.path.join(results, rung + ".csv.gz"), "rt", encoding="utf-8", newline="") as file:
        for run in csv.DictReader(file):
            if run["part"] == "judged":
                runs[run["placement"]][int(run["seed"])] = loss_of(run), run["collapsed"] == "1"
    return dict(runs)


# Tests of the difference between two placements.

def t_tail(t, degrees):
    """Returns the probability that Student's t exceeds `t`, by Simpson's rule over the angle atan(t / sqrt(degrees))."""
    begin, steps = math.atan(t / math.sqrt(degrees)), 2000
    width = (math.pi / 2 - begin) / steps
    area = sum((1 if i in (0, steps) else 4 if i % 2 else 2) * math.cos(begin + i * width) ** (degrees - 1)
               for i in range(steps + 1)) * width / 3
    return area * math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(math.pi)


def t_quantile(tail, degrees):
    """Returns the t that is exceeded with this probability."""
    low, high = 0.0, 1e4
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if t_tail(middle, degrees) > tail else (low, middle)
    return low


def sign_flip_p(differences):
    """Returns the exact p-value of the mean of differences whose signs are arbitrary."""
    observed = abs(sum(differences)) * (1 - 1e-12)
    flips = list(itertools.product((1, -1), repeat=len(differences)))
    return sum(abs(sum(s * d for s, d in zip(signs, differences))) >= observed for signs in flips) / len(flips)


def sign_p(lower, higher):
    """Returns the exact p-value of so many lower and higher runs."""
    n, k = lower + higher, min(lower, higher)
    return min(1.0, 2 * sum(math.comb(n, i) for i in range(k + 1)) / 2**n) if n else None


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
    found.update(mean=mean, test="t")
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
    """Returns the numbers of plumb's report that are others here."""
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
            if not same:
                wrong.append(f"{name}: {key} is {ours} here, {theirs} in plumb's report")
    return wrong


# The order of placements, and how well it agrees between rungs.

def standing(losses):
    """Returns a number that orders placements: by the share of diverged runs, then by the mean of the others."""
    finished = [loss for loss in losses if loss < math.inf]
    return 1e6 * (1 - len(finished) / len(losses)) + (statistics.fmean(finished) if finished else 0)


def ranks(values):
    """Returns the rank of each value from 1, ties with their mean."""
    order = sorted(range(len(values)), key=values.__getitem__)
    found = [0.0] * len(values)
    first = 0
    while first < len(order):
        last = first
        while last + 1 < len(order) and values[order[last + 1]] == values[order[first]]:
            last += 1
        for i in order[first:last + 1]:
            found[i] = (first + last) / 2 + 1
        first = last + 1
    return found


def spearman(a, b):
    a, b = ranks(a), ranks(b)
    middle = (len(a) + 1) / 2
    product = sum((x - middle) * (y - middle) for x, y in zip(a, b))
    scale = math.sqrt(sum((x - middle) ** 2 for x in a) * sum((y - middle) ** 2 for y in b))
    return product / scale if scale else None


def resampled(protocol, judged, source):
    """Returns the standings of the runs as they are, and of each bootstrap sample of seeds, common to all placements."""
    seeds = sorted(set.intersection(*(set(runs) for runs in judged.values())))
    samples = [seeds] + [source.choices(seeds, k=len(seeds)) for _ in range(protocol["bootstrap"]["samples"])]
    return [{name: standing([runs[seed][0] for seed in sample]) for name, runs in judged.items()} for sample in samples]


def percentiles(protocol, values):
    """Returns the ends of the interval that has the protocol's share of the values in its middle."""
    values = sorted(values)
    cut = int((1 - protocol["bootstrap"]["interval"]) / 2 * len(values))
    return values[cut], values[len(values) - 1 - cut]


def correlation(protocol, a, b, names):
    """Returns Spearman's correlation of two rungs over these placements, with its interval, or None of fewer than four."""
    names = sorted(names)
    if len(names) < 4:
        return None
    found = [spearman([x[name] for name in names], [y[name] for name in names]) for x, y in zip(a, b)]
    sampled = [rho for rho in found[1:] if rho is not None]
    return None if found[0] is None or not sampled else (found[0], *percentiles(protocol, sampled))


def pick(protocol, results, texts):
    """Returns the placements for dear rungs by the protocol's rule. Fails if a rung with all placements has no results."""
    rule = protocol["picked"]
    first, own_ranks = collections.Counter(), collections.defaultdict(list)
    for rung in protocol["rungs"]:
        if rung.get("placements", "all") != "all":
            continue
        judged = read_judged(results, rung["name"])
        samples = resampled(protocol, judged, random.Random(protocol["bootstrap"]["seed"]))
        names = sorted(judged)
        places = list(zip(*(ranks([sample[name] for name in names]) for sample in samples)))
        for name, own in zip(names, places):
            first[name] += percentiles(protocol, own[1:])[0] <= 1
            own_ranks[name].append(own[0])

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


# The page.

def signed(value):
    return f"{value:+.3f}".replace("-", "−")


def shown(pair):
    """Returns the cell of a difference in the table."""
    if pair["mean"] is None:
        text = f"lower with {pair['lower']}, higher with {pair['higher']} of {pair['runs']} seeds"
    elif pair["low"] is None:
        text = signed(pair["mean"])
    else:
        text = f"{signed(pair['mean'])} ({signed(pair['low'])} to {signed(pair['high'])})"
    failed = f", diverged in {pair['diverged']} of {pair['runs']}" if pair["diverged"] else ""
    return f"{text} {pair['outcome']}{failed}"


def row(cells):
    return "| " + " | ".join(cells) + " |"


def page(protocol, facts, judged, differences):
    rungs = list(judged)
    source = random.Random(protocol["bootstrap"]["seed"])
    samples = {rung: resampled(protocol, judged[rung], source) for rung in rungs}
    yield f"Version {protocol['version']} of `protocol.json`. {protocol['families']['rule']}\n"
    yield row(["rung", "placements", "runs", "minutes of a processor", "protocol"])
    yield row(["---"] + ["---:"] * 3 + ["---"])
    for rung in rungs:
        yield row([rung, str(len(judged[rung])), str(facts[rung]["runs"]), f"{facts[rung]['processor_seconds'] / 60:.1f}",
                   f"`{facts[rung]['protocol']}`"])
    yield ("\n## Does the order of one rung hold on another?\n\nSpearman's correlation of the placements that two rungs have in "
           f"common, with its {protocol['bootstrap']['interval']:.0%} interval by bootstrap over seeds, which pulls it towards 0.\n")
    yield row([""] + rungs)
    yield row(["---"] * (len(rungs) + 1))
    for i, a in enumerate(rungs):
        cells = []
        for b in rungs[:i]:
            found = correlation(protocol, samples[a], samples[b], set(judged[a]) & set(judged[b]))
            cells.append("–" if found is None else "{:.2f} ({:.2f} to {:.2f})".format(*found).replace("-", "−"))
        yield row([a] + cells + [""] * (len(rungs) - i))
    yield "\n## Differences from pre\n"
    for rung in rungs:
        for twin, name in facts[rung]["same_model"].items():
            yield f"On {rung}, `{twin}` is the same model as `{name}`.\n"
    yield row(["placement", "class"] + rungs)
    yield row(["---"] * (len(rungs) + 2))
    for name in sorted(set().union(*differences.values())):
        pairs = {rung: differences[rung][name] for rung in rungs if name in differences[rung]}
        found = classes(protocol, {rung: pair["outcome"] for rung, pair in pairs.items()})
        yield row([f"`{name}`", ", ".join(found)] + [shown(pairs[rung]) if rung in pairs else "" for rung in rungs])


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    results = sys.argv[1]
    with open(os.path.join(HERE, "protocol.json"), encoding="utf-8") as file:
        protocol = json.load(file)
    facts, judged, differences, wrong = {}, {}, {}, []
    for rung in (rung["name"] for rung in protocol["rungs"]):
        if not os.path.exists(os.path.join(results, rung + ".csv.gz")):
            continue
        with open(os.path.join(results, rung + ".json"), encoding="utf-8") as file:
            facts[rung] = json.load(file)
        judged[rung] = read_judged(results, rung)
        differences[rung] = differences_of(protocol, judged[rung])
        wrong += [f"{rung}: {line}" for line in disagreements(differences[rung], facts[rung]["paired"])]
    if not judged:
        sys.exit(f"{results} has no results")
    for key in ("protocol", "plumb"):
        if len({str(rung[key]) for rung in facts.values()}) > 1:
            wrong.append(f"{key} is not the same in all rungs")
    print("\n".join(page(protocol, facts, judged, differences)))
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
