#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Recomputes the differences of report.json from runs.csv with its own code.

Usage: check_differences.py STUDY. Compares every difference between models, its interval and its
p-values, and Holm's adjustment, and exits with 1 and the first disagreement.
"""
import csv
import itertools
import json
import math
import sys


def student_tail(t, df):
    """Returns P(T > t) by integrating the density from 0 to t (Simpson's rule)."""
    norm = math.gamma((df + 1) / 2) / (math.sqrt(df * math.pi) * math.gamma(df / 2))

    def integrand(angle):  # t = sqrt(df) tan(angle)
        return math.cos(angle) ** (df - 1)

    end = math.atan(t / math.sqrt(df))
    n = 2000
    total = sum(
        (1 if i in (0, n) else 4 if i % 2 else 2) * integrand(end * i / n) for i in range(n + 1)
    )
    return 0.5 - norm * math.sqrt(df) * total * end / n / 3


def student_quantile(p, df):
    low, high = 0.0, 1e4
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if student_tail(middle, df) > 1 - p else (low, middle)
    return (low + high) / 2


def sign_flip(differences):
    limit = abs(sum(differences)) - 1e-12
    signs = list(itertools.product((1, -1), repeat=len(differences)))
    return sum(abs(sum(s * d for s, d in zip(sign, differences))) >= limit for sign in signs) / len(
        signs
    )


def sign_test(lower, higher):
    n, most = lower + higher, max(lower, higher)
    return min(1, 2 * sum(math.comb(n, k) for k in range(most, n + 1)) / 2**n)


def analyze(pairs, collapsed):
    """Returns the figures of a list of pairs of losses, of which one that diverged is infinite."""
    n = len(pairs)
    if n == 0:
        return {"runs": 0, "test": "t", "lower": 0, "higher": 0}
    lower, higher = sum(a < b for a, b in pairs), sum(a > b for a, b in pairs)
    if any(math.isinf(loss) for pair in pairs for loss in pair):
        p = sign_test(lower, higher)
        return {"runs": n, "test": "signs", "lower": lower, "higher": higher, "p": p}
    differences = [a - b for a, b in pairs]
    figures = analyze_differences(differences)
    figures.update(test="sign flips" if collapsed else "t", lower=lower, higher=higher)
    figures["p"] = figures.get("p_sign_flip" if collapsed else "p_student")
    return figures


def analyze_differences(differences):
    n = len(differences)
    mean = sum(differences) / n
    figures = {"runs": n, "mean": mean, "p_sign_flip": sign_flip(differences)}
    if n > 1 and mean == 0:
        figures["p_student"] = 1
    if n > 1 and max(differences) - min(differences) > 1e-9 * abs(mean):
        error = math.sqrt(sum((d - mean) ** 2 for d in differences) / (n - 1) / n)
        half = student_quantile(0.975, n - 1) * error
        figures.update(low=mean - half, high=mean + half)
        figures["p_student"] = 2 * student_tail(abs(mean) / error, n - 1)
    return figures


def holm(values):
    order = sorted((i for i, p in enumerate(values) if p is not None), key=lambda i: values[i])
    adjusted, largest = list(values), 0
    for k, i in enumerate(order):
        largest = max(largest, min(1, (len(order) - k) * values[i]))
        adjusted[i] = largest
    return adjusted


def close(a, b):
    if a is None or b is None:
        return a is None and b is None
    return abs(a - b) <= 1e-6 * max(1, abs(b))


def main():
    directory = sys.argv[1]
    report = json.load(open(f"{directory}/report.json", encoding="utf-8"))
    runs = list(csv.DictReader(open(f"{directory}/runs.csv", encoding="utf-8")))
    groups = [group["name"] for group in report["groups"]]

    def values(group, metric):
        column = metric.replace(" ", "_")
        return {
            run["seed"]: (math.inf if run["status"] == "diverged" else float(run[column]),
                          run["collapsed"] == "1")
            for run in runs
            if run["group"] == groups[group] and (run[column] != "" or run["status"] == "diverged")
        }

    def difference(group, against, metric):
        a, b = values(group, metric), values(against, metric)
        both = [seed for seed in a if seed in b]
        return analyze([(a[s][0], b[s][0]) for s in both], any(a[s][1] or b[s][1] for s in both))

    checked = 0
    n_cells = len(report["cells"])
    for metric in {entry["metric"] for entry in report["paired"]}:
        # Pairs with the first model are one family, and all pairs that of the others.
        family, first = {}, []
        for cell in range(n_cells):
            own = [g for g, group in enumerate(report["groups"]) if group["cell"] == cell]
            for i, against in enumerate(own):
                for group in own[i + 1 :]:
                    family[group, against] = difference(group, against, metric)
                    if i == 0:
                        first.append(family[group, against])
        for members in (list(family.values()), first):
            for figures, p in zip(members, holm([figures.get("p") for figures in members])):
                figures["p_holm"] = p
        for entry in report["paired"]:
            if entry["metric"] != metric:
                continue
            figures = family[entry["group"], entry["against"]]
            for key in ("test", "lower", "higher"):
                if entry[key] != figures[key]:
                    sys.exit(f"{entry}: {key} should be {figures[key]}")
            for key in ("runs", "mean", "low", "high", "p_student", "p_sign_flip", "p_holm"):
                if not close(entry[key], figures.get(key)):
                    sys.exit(f"{entry}: {key} should be {figures.get(key)}")
                checked += 1
    print(f"{checked} figures of {len(report['paired'])} differences agree")


main()
