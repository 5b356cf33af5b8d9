// SPDX-License-Identifier: Apache-2.0
// Report objects like those of `plumb compare` (docs/report.md). They are generated, equal in every
// run, and contain all difficult cases of real studies: small models learn names, one per step.

import { readFileSync } from "node:fs";

const pictureOf = (placement) =>
  readFileSync(new URL(`../../docs/images/placements/${placement}.svg`, import.meta.url), "utf8");

// Returns a small generator of random numbers (mulberry32).
export function random(seed) {
  let state = seed >>> 0;
  const uniform = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t = (t + Math.imul(t ^ (t >>> 7), t | 61)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  const normal = () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
  return { uniform, normal };
}

// Mark around names in the conclusion.
const mark = "\ue000";

const round = (value, digits) => Number(value.toFixed(digits));

// Losses of each kind of model: they fall to `end` with a spike, and models with the same seed
// share noise.
const kinds = {
  pre: { end: 2.36, spike: 0.1, gain: 0.97, growth: 0.35 },
  post: { end: 2.5, spike: 0.1, gain: 0.6, growth: 0 },
  none: { end: 2.32, spike: 2.2, gain: 1.25, growth: 0.9 },
};

function losses(kind, seed, steps, collapsed) {
  const shared = random(seed * 7919);
  const own = random(seed * 104729 + kind.end * 1000);
  const end = (collapsed ? 2.752 : kind.end) + 0.015 * own.normal();
  return Array.from({ length: steps }, (_, i) => {
    const learned =
      0.6 * Math.exp(-i / (collapsed ? 25 : 60)) +
      (collapsed ? 0 : 0.35 * Math.exp(-i / (steps / 3)));
    const spike = kind.spike * Math.exp(-(((i - 6) / 4) ** 2));
    return round(
      Math.max(0.4, end + learned + spike + 0.34 * shared.normal() + 0.03 * own.normal()),
      4,
    );
  });
}

function probes(kind, runs, steps, layers) {
  const noise = random(31 + kind.end * 77);
  const at = [1, 10, 20, 50];
  for (let step = 100; step <= steps; step += 50) at.push(step);
  const series = (name, { log = true, largest = false }, value) => ({
    name,
    log,
    largest,
    values: at.map((step) =>
      Array.from({ length: layers }, (_, layer) =>
        Number((value(layer, step) * Math.exp(0.1 * noise.normal())).toPrecision(4)),
      ),
    ),
  });
  return {
    runs,
    steps: at,
    layers: Array.from({ length: layers }, (_, layer) => `layers.${layer}`),
    series: [
      series(
        "gradient norm",
        {},
        (layer, step) => 0.4 * kind.gain ** (layers - layer) * (1 + 2 * Math.exp(-step / 80)),
      ),
      series("residual stream RMS", {}, (layer, step) =>
        Math.exp(kind.growth * (layer + 1) * (0.3 + 0.7 * Math.min(1, step / 500))),
      ),
      series("attention entropy", { log: false }, (layer) => 1 / (1 + layer)),
      series("largest attention logit", { largest: true }, (layer, step) => step * (1 + layer)),
    ],
  };
}

// Texts in a sample that could harm the page or its layout, from a model or an attacker.
export const hostile = {
  script: '<script>window.harmed = 1</script><img src=x onerror="window.harmed = 2">',
  end: "</script><script>window.harmed = 3</script><!-- ",
  lines: "before\u2028window.harmed = 4\u2029after \u0000\u001b[31m",
  arabic: "\u202eمرحبا <b>world</b> \u2066abc",
  long: "a".repeat(10000),
};

const names = [
  "emma",
  "olivia",
  "kaylen",
  "jorra",
  "mariah",
  "anneli",
  "tovin",
  "brisa",
  "dalen",
  "oriel",
];

function samples(model, seed, collapsed) {
  const pick = random(seed + model * 1000);
  const name = () => names[Math.floor(pick.uniform() * names.length)];
  if (collapsed) {
    return [
      { text: "aaaaaaaaaaaaaaa", degenerate: "one token makes up 100 %" },
      { text: "", degenerate: "empty" },
      { text: "ana\nana\nana\nana\nana", degenerate: "the same line 5 times" },
    ];
  }
  return [
    { text: name(), degenerate: "" },
    { text: name(), degenerate: "" },
    { text: name(), degenerate: "" },
  ];
}

// Returns an approximation of Student's t at 97.5 %.
const t975 = (n) => 1.96 + 2.4 / Math.max(1, n - 1);

function meanAndSd(values) {
  const mean = values.reduce((a, b) => a + b, 0) / values.length;
  const sd =
    values.length > 1
      ? Math.sqrt(values.reduce((a, b) => a + (b - mean) ** 2, 0) / (values.length - 1))
      : null;
  return { mean, sd };
}
const tail = (loss, n) => meanAndSd(loss.slice(-n)).mean;

function cell(values, digits = 3) {
  if (values.length === 0) return { text: "–", value: null, sd: null };
  const { mean, sd } = meanAndSd(values);
  return {
    text: sd === null ? mean.toFixed(digits) : `${mean.toFixed(digits)} ± ${sd.toFixed(digits)}`,
    value: mean,
    sd,
  };
}

// Returns a whole report. `models` are names of kinds, or other names, which are then assigned
// kinds in turn.
export function makeReport({
  models = ["pre", "post", "none"],
  seeds = 20,
  steps = 1000,
  withProbes = true,
  withSamples = true,
  withHostile = true,
  divergedSeed = 13,
  validationEvery = 0,
} = {}) {
  const kindOf = (i) => {
    if (kinds[models[i]]) return kinds[models[i]];
    const kind = Object.values(kinds)[i % 3];
    return { ...kind, end: kind.end + 0.013 * i };
  };
  const runs = [];
  const groups = models.map((name, model) => ({
    name,
    model,
    cell: 0,
    settings: {},
    max_steps: steps,
    tokens_per_step: 7.5,
    flops_per_token: 150000 * (1 + model),
    probes: withProbes ? probes(kindOf(model), Math.min(3, seeds), steps, 8) : null,
    steps: null,
    runs: [],
  }));
  models.forEach((name, model) => {
    for (let seed = 1; seed <= seeds; ++seed) {
      const collapsed = name === "post" && seed % 2 === 0;
      const diverged = name === "none" && seed === divergedSeed;
      let loss = losses(kindOf(model), seed, steps, collapsed);
      if (diverged)
        loss = [
          ...loss.slice(0, 411).map((value, i) => round(i > 390 ? value * (i - 389) : value, 3)),
          null,
        ];
      const last = diverged ? 412 : steps;
      const at = [];
      for (let step = validationEvery || steps; step <= last; step += validationEvery || steps) {
        at.push([step, round(tail(loss.slice(0, step), 100) + 0.02, 4)]);
      }
      groups[model].runs.push(runs.length);
      runs.push({
        group: model,
        seed,
        status: diverged ? "diverged" : "finished",
        step: last,
        message: diverged ? "the loss is not finite (after a gradient norm of 3.1e+19)" : "",
        loss,
        last: loss.findLast((value) => value !== null),
        end: diverged ? null : tail(loss, 100),
        validation: at,
        collapsed,
        samples: withSamples && !diverged ? samples(model, seed, collapsed) : [],
      });
    }
  });
  if (withHostile && withSamples) {
    for (const text of Object.values(hostile)) runs[0].samples.push({ text, degenerate: "" });
    runs[0].samples.at(-1).degenerate = "one token makes up 100 % <b>of</b> it";
  }
  const ends = groups.map((group) =>
    group.runs.map((run) => (runs[run].status === "finished" ? tail(runs[run].loss, 100) : null)),
  );
  const good = (group) => ends[group].filter((value) => value !== null);
  groups.forEach((group, i) => {
    const { mean, sd } = good(i).length > 0 ? meanAndSd(good(i)) : { mean: null, sd: null };
    const half = sd === null ? null : (t975(good(i).length) * sd) / Math.sqrt(good(i).length);
    const bound = (sign) => (half === null ? null : mean + sign * half);
    const diverged = group.runs.length - good(i).length;
    group.result = {
      mean,
      low: bound(-1),
      high: bound(1),
      runs: good(i).length,
      diverged,
      place: [1, 3],
    };
  });
  return {
    title: models.slice(0, 4).join(", ") + (models.length > 4 ? ", …" : ""),
    command:
      `plumb compare ${models.map((name) => `${name}.pbtxt`).join(" ")} --data ` +
      `names.txt --seeds ${seeds} --out study`,
    provenance: {
      plumb: "0.1.0",
      onednn: "2.6.3",
      kernels: "AVX3",
      data: { path: "names.txt", description: "32,033 names", sha256: "5f3a".repeat(16) },
      plugins: [
        {
          id: "rms_norm",
          version: "1.0.0",
          path: "lib/plumb/norm-v1/rms_norm.so",
          sha256: "09ab".repeat(16),
        },
      ],
    },
    steps,
    windows: { first: 100, last: 200 },
    models: models.map((name, i) => ({
      name,
      file: `${name}.pbtxt`,
      parameters: 25968 - 16 * i,
      equations: [
        {
          pre: "each: x = x + f(norm(x))",
          post: "each: x = norm(x + f(x))",
          none: "each: x = x + f(x)",
        }[name] ?? "each: x = x + f(norm(x))",
        ...(name === "pre" ? ["end:  x = norm(x)"] : []),
      ],
      ...(kinds[name] && { picture: pictureOf(name) }),
      route:
        name === "post"
          ? "no identity route: every sublayer's norm is on the way, J_norm (I + J)"
          : "identity route from embedding to head: I + J at every sublayer",
      jacobians: [
        { layers: [0], jacobian: "(I + J_mlp) (I + J_attention J_norm)" },
        { layers: [1, 2, 4], jacobian: "(I + J_mlp J_norm) (I + J_attention J_norm)" },
      ],
    })),
    differences:
      models.length > 1
        ? [
            { field: "block.placement", values: models },
            {
              field: "norm",
              values: models.map((name) => (name === "none" ? "none" : "rms_norm")),
            },
          ]
        : [],
    groups,
    runs,
    seconds_per_step: groups.map((_, i) => 0.001 * (1 + i)),
    table: {
      columns: [
        "model",
        "parameters",
        "runs",
        "first 50",
        "last 100",
        "max of first 20",
        "min",
        "validation",
        "diverged",
        "collapsed",
      ],
      rows: groups.map((group, i) => {
        const own = group.runs.map((run) => runs[run]);
        const finite = (run) => run.loss.filter((value) => value !== null);
        return [
          { text: group.name },
          { text: String(25968 - 16 * i), value: 25968 - 16 * i },
          { text: String(own.length), value: own.length },
          cell(own.map((run) => meanAndSd(finite(run).slice(0, 50)).mean)),
          cell(good(i)),
          cell(own.map((run) => Math.max(...finite(run).slice(0, 20)))),
          cell(own.map((run) => finite(run).reduce((a, b) => Math.min(a, b)))),
          cell(
            own.filter((run) => run.validation.length > 0).map((run) => run.validation.at(-1)[1]),
          ),
          ...["diverged", "collapsed"].map((what) => {
            const n = own.filter(
              (run) => run.status === what || (what === "collapsed" && run.collapsed),
            ).length;
            return { text: String(n), value: n };
          }),
        ];
      }),
    },
    paired: groups.slice(1).map((_, i) => {
      // A diverged run is worse than any loss.
      const loss = (end) => end ?? Infinity;
      const lower = ends[i + 1].filter((end, seed) => loss(end) < loss(ends[0][seed])).length;
      const higher = ends[i + 1].filter((end, seed) => loss(end) > loss(ends[0][seed])).length;
      const failed = [...ends[0], ...ends[i + 1]].includes(null);
      const both = failed ? [] : ends[i + 1].map((end, seed) => end - ends[0][seed]);
      const { mean, sd } = both.length > 0 ? meanAndSd(both) : { mean: null, sd: null };
      const half = sd === null ? null : (t975(both.length) * sd) / Math.sqrt(both.length);
      return {
        metric: "last 100",
        cell: 0,
        group: i + 1,
        against: 0,
        mean,
        low: half === null ? null : mean - half,
        high: half === null ? null : mean + half,
        runs: ends[0].length,
        lower,
        higher,
        test: failed ? "signs" : "t",
        p_student: 0.0002,
        p_sign_flip: 0.002,
        p_holm: 0.0004,
        p_equal: null,
      };
    }),
    judged: "last 100",
    cells: [""],
    best: null,
    conclusion: `${mark}${groups.at(-1)?.name}${mark} is better than the others.`,
  };
}

// Returns the report with the means of blocks of `size` steps, except for the first 100 and the last
// 200, as of studies with long runs.
export function inBlocks(report, size) {
  for (const group of report.groups) {
    const ends = [];
    for (let step = 1; step <= report.steps; ++step) {
      const single = step <= 100 || step > report.steps - 200;
      if (single || (step - 100) % size === 0 || step === report.steps - 200) ends.push(step);
    }
    group.steps = ends;
    const kept = group.runs.filter((run) => report.runs[run].status === "finished");
    const means = Array.from(
      { length: report.steps },
      (_, i) => meanAndSd(kept.map((run) => report.runs[run].loss[i])).mean,
    );
    group.extremes = ends.flatMap((end, i) => {
      const block = means.slice(ends[i - 1] ?? 0, end);
      if (block.length < 2) return [];
      const [low, high] = [Math.min(...block), Math.max(...block)];
      return block.indexOf(low) <= block.indexOf(high) ? [low, high] : [high, low];
    });
    for (const run of group.runs.map((index) => report.runs[index])) {
      run.loss = ends
        .map((end, i) => run.loss.slice(ends[i - 1] ?? 0, end))
        .filter((block) => block.length > 0)
        .map((block) => block.filter((loss) => loss !== null))
        .map((block) => (block.length > 0 ? round(meanAndSd(block).mean, 5) : null));
    }
  }
  return report;
}

// Returns the same study with all runs diverged.
export function allDiverged() {
  const report = makeReport({ seeds: 2, withProbes: false, withSamples: false });
  const { columns, rows } = report.table;
  for (const row of rows) {
    for (const name of ["last 100", "validation"])
      row[columns.indexOf(name)] = { text: "–", value: null, sd: null };
    row[columns.indexOf("diverged")] = { text: "2", value: 2 };
    row[columns.indexOf("collapsed")] = { text: "0", value: 0 };
  }
  for (const group of report.groups) {
    group.result = { mean: null, low: null, high: null, runs: 0, diverged: 2 };
  }
  for (const run of report.runs) {
    Object.assign(run, {
      status: "diverged",
      step: 3,
      message: "the loss is not finite",
      loss: [3.3, 9.1, null],
      last: 9.1,
      end: null,
      validation: [],
      collapsed: false,
    });
  }
  for (const entry of report.paired)
    Object.assign(entry, {
      mean: null,
      low: null,
      high: null,
      runs: 2,
      test: "signs",
      lower: 0,
      higher: 0,
      p_holm: 1,
    });
  report.conclusion = "Every run diverged: there is no end to compare.";
  return report;
}

// Returns the minimal report object.
export const nothing = () => ({ title: "", steps: 0, models: [], groups: [], runs: [] });
