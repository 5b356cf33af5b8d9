// SPDX-License-Identifier: Apache-2.0
// Returns the top of the page: the compared models, and the outcome in a sentence made from the
// data.
function headlineSection(report) {
  const groups = report.groups;
  const runs = report.runs;
  const seeds = new Set(runs.map((run) => run.seed)).size;
  const facts = [
    format.plural(report.models.length, "model"),
    format.plural(seeds, "seed"),
    format.plural(report.steps ?? 0, "step"),
    format.plural(runs.length, "run"),
    report.provenance?.data?.path?.split("/").pop() ?? report.provenance?.data?.description,
  ].filter(Boolean);
  const title =
    report.title || groups.map((group) => group.name).join(", ") || "An empty comparison";
  document.title = `${title} · plumb compare`;
  return dom.el(
    "header",
    { class: "headline" },
    dom.el("p", { class: "kicker" }, "plumb compare"),
    dom.el("h1", {}, title),
    dom.el("p", { class: "outcome" }, withNames(outcome(report).join(" "))),
    dom.el(
      "ul",
      { class: "facts" },
      facts.map((text) => dom.el("li", {}, text)),
    ),
  );
}

// Names are emphasized in sentences, because a model may be called "none". The mark is a character
// that no text uses (from Unicode's private use area).
const nameMark = "\ue000";
const named = (name) => nameMark + name + nameMark;
const withNames = (text) =>
  text.split(nameMark).map((part, i) => (i % 2 === 1 ? dom.el("strong", {}, part) : part));

// Returns the number of steps in the metric that judges the end of training, such as "last 100".
function endWindow(report) {
  const names = [
    ...(report.paired ?? []).map((entry) => entry.metric),
    ...(report.table?.columns ?? []),
  ];
  for (const name of names) {
    const match = /^last (\d+)$/.exec(name);
    if (match) return Number(match[1]);
  }
  return Math.min(100, report.steps || 100);
}

// Returns sentences: which group ends lowest and by how much, then what went wrong.
function outcome(report) {
  const window = endWindow(report);
  const ends = report.groups.map((group, index) => ({
    index,
    name: group.name,
    runs: group.runs.length,
    ...stats.summary(group.runs.map((run) => stats.endOf(report.runs[run], window))),
  }));
  const ranked = ends.filter((end) => end.n > 0).sort((a, b) => a.mean - b.mean);
  const troubles = troubleSentences(report);
  if (report.runs.length === 0) return ["There are no runs in this comparison."];
  if (ranked.length === 0) {
    const all = report.runs.every((run) => run.status === "diverged");
    return [
      all
        ? "Every run diverged: there is no end to compare."
        : "No run finished: there is no end to compare.",
      ...(all ? [] : troubles),
    ];
  }
  const best = ranked[0];
  const over = `over the last ${format.plural(window, "step")}`;
  if (ranked.length === 1) {
    return [
      report.groups.length === 1
        ? `The loss at the end: ${plusMinus(best)} ${over}.`
        : `Only ${named(best.name)} has runs that finished; the loss at their end: ` +
          `${plusMinus(best)} ${over}.`,
      ...troubles,
    ];
  }
  const pairs = (report.paired ?? []).filter((entry) => entry.metric === `last ${window}`);
  const pairOf = (group, against) =>
    pairs.find((entry) => entry.group === group && entry.against === against);
  const own = pairs.find((entry) => entry.group === best.index);
  const rivals = ranked.slice(1).filter((end) => pairOf(end.index, best.index));
  const first = `Lowest loss at the end: ${named(best.name)}, ${plusMinus(best)} ${over}`;
  if (own) {
    const next =
      ranked[1].index === own.against
        ? []
        : [`Next is ${named(ranked[1].name)}, ${plusMinus(ranked[1])}.`];
    return [
      first + comparedWith(own, report.groups[own.against].name, false),
      ...next,
      ...troubles,
    ];
  }
  if (rivals.length > 0) {
    return [
      first + comparedWith(pairOf(rivals[0].index, best.index), rivals[0].name, true),
      ...troubles,
    ];
  }
  const gap = format.loss(ranked[1].mean - best.mean);
  return [
    `${first}, ${gap} below ${named(ranked[1].name)}. ` +
      (best.runs === 1
        ? "With one seed each, nobody can say how much of that is chance."
        : "There are no paired differences to say how much of that is chance."),
    ...troubles,
  ];
}

const plusMinus = ({ mean, sd, n }) =>
  n > 1 ? `${format.loss(mean)} ± ${format.loss(sd)}` : format.loss(mean);

// Returns text such as ", 0.042 below pre (95 % interval 0.030 to 0.054, 20 pairs of runs)."
// `flip`: the entry is the rival's difference to the best.
function comparedWith(entry, rival, flip) {
  if (!format.isNumber(entry.mean)) return `; no seed finished for both it and ${named(rival)}.`;
  // The best may be above its rival in paired seeds if not every seed finished for both.
  const isBelow = flip ? entry.mean >= 0 : entry.mean <= 0;
  const where =
    format.loss(Math.abs(entry.mean)) +
    (isBelow ? ` below ${named(rival)}` : ` above ${named(rival)} seed by seed`);
  if (!format.isNumber(entry.low) || !format.isNumber(entry.high) || entry.runs < 2) {
    return (
      `, ${where}. With ${format.plural(entry.runs ?? 1, "pair")} of runs, nobody can say ` +
      `how much of that is chance.`
    );
  }
  const [low, high] = entry.mean > 0 ? [entry.low, entry.high] : [-entry.high, -entry.low];
  const interval =
    `95 % interval ${format.loss(low)} to ${format.loss(high)}, ` +
    `${format.plural(entry.runs, "pair")} of runs with the same seed`;
  return low > 0
    ? `, ${where} (${interval}).`
    : `, ${where}, which may be chance: the interval holds 0 (${interval}).`;
}

function troubleSentences(report) {
  const counted = (test) =>
    report.groups
      .map((group) => [group, group.runs.filter((run) => test(report.runs[run])).length])
      .filter(([, n]) => n > 0)
      .map(
        ([group, n]) => `${named(group.name)} (${n} of ${format.plural(group.runs.length, "run")})`,
      );
  const sentences = [];
  const diverged = counted((run) => run.status === "diverged");
  const collapsed = counted((run) => run.collapsed === true);
  const interrupted = counted((run) => run.status === "interrupted");
  if (diverged.length > 0) sentences.push(`Diverged: ${format.list(diverged)}.`);
  if (collapsed.length > 0)
    sentences.push(`Collapsed to the unigram plateau: ${format.list(collapsed)}.`);
  if (interrupted.length > 0) sentences.push(`Interrupted: ${format.list(interrupted)}.`);
  return sentences;
}
