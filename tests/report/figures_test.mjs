// SPDX-License-Identifier: Apache-2.0
// Tests of the figures and of what a reader can do with them.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { colors, fileOf, open, picture, study, wholeRun } from "./browser.mjs";
import { inBlocks, makeReport, nothing } from "./fixture.mjs";

test("every section and figure is drawn", async (t) => {
  const page = await open(t, study());
  assert.deepEqual(
    await page.locator("section").evaluateAll((all) => all.map((section) => section.id)),
    ["results", "loss", "outcomes", "flow", "models", "samples", "provenance"],
  );
  const lines = await colors(page, ".uplot canvas");
  assert.equal(lines.length, 12); // 3 panes, cumulative, four probes by layer and over steps
  for (const count of lines) assert.ok(count > 10, `a chart has ${count} colours`);
  const maps = await colors(page, "canvas.heat");
  assert.equal(maps.length, 3);
  for (const count of maps) assert.ok(count > 20, `a heat map has ${count} colours`);
  // Every run has marks for its end and its validation loss, except for the one that diverged.
  assert.equal(await page.locator("#outcomes .mark").count(), 2 * 59);
});

test("each model has its picture, which follows the theme", async (t) => {
  const page = await open(t, study());
  const images = page.locator("#models img.picture");
  assert.equal(await images.count(), 3);
  assert.match(await images.first().getAttribute("width"), /^\d{3}$/); // before it is decoded
  const drawn = () =>
    images.evaluateAll((all) => all.map((image) => [image.complete, image.naturalWidth]));
  for (const [complete, width] of await drawn()) assert.ok(complete && width > 100, `${width}`);
  assert.match(await images.last().getAttribute("alt"), /^The data flow of none: each: x = x \+ f/);
  const shown = () => images.first().evaluate((image) => decodeURIComponent(image.src));
  assert.ok((await shown()).includes("@media not all {"));
  await page.getByRole("button", { name: "Switch to the dark theme" }).click();
  assert.ok((await shown()).includes("@media all {"));
});

test("a model without a picture has its equations", async (t) => {
  const make = () => {
    const report = makeReport({ models: ["pre", "post"], seeds: 2, withProbes: false });
    delete report.models[0].picture;
    return report;
  };
  const page = await open(t, fileOf("no picture", make));
  assert.equal(await page.locator("#models .card").count(), 2);
  assert.equal(await page.locator("#models img.picture").count(), 1);
});

test("the headline is the conclusion of the study", async (t) => {
  const page = await open(t, study());
  assert.equal(await page.locator(".outcome").textContent(), "none is better than the others.");
  assert.equal(await page.locator(".outcome strong").first().textContent(), "none");
  assert.equal(await page.title(), "pre, post, none · plumb compare");
});

test("a diverged run is counted where its model is named, and has no mean difference", async (t) => {
  const page = await open(t, study());
  const ranking = await page.locator(".dot-row", { hasText: "none" }).first().textContent();
  assert.match(ranking, /diverged in 1 of 20, place 1–3.*lower in 18 of 20 seeds/);
  const table = page.locator("#results figure", { hasText: "Differences" }).first();
  assert.match(
    await table.textContent(),
    /none \(diverged in 1 of 20\) − prelower in 18 of 20 seeds/,
  );
});

test("differences name their two models and their cell", async (t) => {
  const make = () => {
    const report = makeReport({ models: ["pre", "post"], seeds: 3, withProbes: false });
    report.cells = ["learning_rate=0.01"];
    return report;
  };
  const page = await open(t, fileOf("cells", make));
  assert.match(
    await page.locator("#results figure", { hasText: "Differences" }).first().textContent(),
    /post − pre, learning_rate=0\.01/,
  );
});

test("the slider smooths, with the mouse and with keys", async (t) => {
  const page = await open(t, study());
  const before = await picture(page, wholeRun);
  const slider = page.getByLabel("Smoothing α");
  await slider.focus();
  await page.keyboard.press("Home");
  await assert.doesNotReject(
    page.waitForFunction(() => document.querySelector("output.alpha").textContent === "off"),
  );
  await page.waitForFunction(
    ([css, old]) => document.querySelector(css).toDataURL() !== old,
    [wholeRun, before],
  );
  await page.keyboard.press("End");
  const most = "0.996, about 250 steps"; // a quarter of the run
  await page.waitForFunction(
    (text) => document.querySelector("output.alpha").textContent === text,
    most,
  );
  assert.equal(await slider.getAttribute("aria-valuetext"), most);
});

test("smoothing begins with a fortieth of the run, before the losses themselves", async (t) => {
  for (const [steps, text] of [
    [60, "off"],
    [400, "0.9, about 10 steps"],
    [5000, "0.98, about 50 steps"],
  ]) {
    const report = makeReport({ models: ["pre", "none"], seeds: 1, steps, withProbes: false });
    const page = await open(
      t,
      fileOf(`steps-${steps}`, () => report),
    );
    assert.equal(await page.locator("output.alpha").textContent(), text);
    assert.ok(await page.getByLabel("unsmoothed").isChecked());
  }
});

test("the curve is the debiased average over every step", async (t) => {
  const report = makeReport({
    models: ["pre"],
    seeds: 1,
    steps: 400,
    withProbes: false,
    withSamples: false,
  });
  const page = await open(
    t,
    fileOf("one", () => report),
  );
  let [sum, weight] = [0, 0];
  for (const loss of report.runs[0].loss)
    [sum, weight] = [0.9 * sum + 0.1 * loss, 0.9 * weight + 0.1];
  assert.equal(await page.locator(".chip-value").textContent(), (sum / weight).toFixed(3));
});

test("bands, axis and unsmoothed lines can be chosen", async (t) => {
  const page = await open(t, study());
  let last = await picture(page, wholeRun);
  for (const choose of [
    () => page.getByRole("radio", { name: "min–max" }).check(),
    () => page.getByRole("radio", { name: "every run" }).check(),
    () => page.getByRole("radio", { name: "mean", exact: true }).check(),
    () => page.getByLabel("log", { exact: true }).check(),
    () => page.getByLabel("unsmoothed").uncheck(),
  ]) {
    await choose();
    const now = await picture(page, wholeRun);
    assert.notEqual(now, last);
    last = now;
  }
});

test("curves can be drawn against steps, tokens, FLOPs and seconds", async (t) => {
  // Two models as with --match flops: the second has half the steps, of twice the FLOPs.
  const report = makeReport({ models: ["pre", "post"], seeds: 3, steps: 800, withProbes: false });
  const [long, short] = report.groups;
  short.max_steps = 400;
  for (const run of short.runs) report.runs[run].loss.length = report.runs[run].step = 400;
  short.flops_per_token = 2 * long.flops_per_token;
  short.tokens_per_step = long.tokens_per_step;
  const page = await open(
    t,
    fileOf("axes", () => report),
  );
  const [whole, , last] = await page.locator("#loss .chart").all();
  let before = await picture(page, wholeRun);
  const values = async () => {
    await last.focus();
    await page.keyboard.press("End");
    const text = await page.locator(".legend [role=status]").textContent();
    await page.keyboard.press("Escape");
    return text;
  };
  assert.match(await values(), /^smoothed, step 800: pre \d\.\d{3}, post –/);
  const note = page.getByText("The shaded ends are drawn larger below.");
  assert.ok(!(await note.isVisible())); // each model has its own end
  for (const [axis, text] of [
    ["tokens", /^smoothed, 6000 tokens: pre \d\.\d{3}, post –/],
    ["FLOPs", /^smoothed, 900M FLOPs: pre \d\.\d{3}, post \d\.\d{3}/], // both at their end
    ["seconds", /^smoothed, 0\.8 seconds: pre \d\.\d{3}, post \d\.\d{3}/],
  ]) {
    await page.getByRole("radio", { name: axis }).check();
    const now = await picture(page, wholeRun);
    assert.notEqual(now, before, axis);
    before = now;
    assert.match(await values(), text);
  }
  // The pane of the end has the last steps of either model.
  await page.getByRole("radio", { name: "FLOPs" }).check();
  await last.focus();
  await page.keyboard.press("Home");
  assert.match(
    await page.locator(".legend [role=status]").textContent(),
    /^smoothed, 452M FLOPs: pre \d\.\d{3}, post \d\.\d{3}/, // step 201 of 400
  );
  await page.locator("#loss details.numbers > summary").click();
  const row = page.locator("#loss details.numbers tbody tr").last();
  assert.match(await row.textContent(), /^900M\d\.\d{3} ± .*\d\.\d{3} ± /);
  // Every curve ends where the models end.
  for (const chart of ["#loss .chart", "#outcomes .chart"]) {
    await page.locator(chart).first().focus();
    await page.keyboard.press("End");
    assert.match(
      await page.locator(".legend-place").textContent(),
      /^(smoothed,|average to) 900M FLOPs/,
    );
    await page.keyboard.press("Escape");
  }
  // Smoothing and bands work on every axis.
  await page.getByRole("radio", { name: "every run" }).check();
  assert.notEqual(await picture(page, wholeRun), before);
  await whole.focus();
  assert.ok((await colors(page, "#outcomes canvas"))[0] > 10);
});

test("a page without an amount does not offer its axis", async (t) => {
  const make = () => {
    const report = makeReport({ models: ["pre", "post"], seeds: 1, withProbes: false });
    delete report.seconds_per_step;
    report.groups[1].tokens_per_step = null;
    return report;
  };
  const page = await open(t, fileOf("no amounts", make));
  assert.equal(await page.getByRole("group", { name: "Against" }).count(), 0);
});

test("every kind of probe has its figures by layer and during training", async (t) => {
  const page = await open(t, study());
  assert.deepEqual(
    await page
      .locator("#flow .pair h3")
      .allTextContents()
      .then((all) => all.filter((text) => text.startsWith("L"))),
    ["Largest attention logit by layer", "Largest attention logit during training"],
  );
  const figure = page.locator("#flow figure", {
    hasText: "Largest attention logit during training",
  });
  await figure.locator(".chart").focus();
  await page.keyboard.press("End");
  const told = await figure.locator(".readout").textContent();
  // The largest of the layers is that of the last one.
  const last = makeReport().groups.map((group) =>
    group.probes.series.find(({ largest }) => largest).values.at(-1),
  );
  const most = last.map((row) => Math.max(...row));
  assert.equal(
    told,
    `step 1,000: pre ${Number(most[0].toPrecision(3))} · post ${Number(most[1].toPrecision(3))} · ` +
      `none ${Number(most[2].toPrecision(3))}`,
  );
  const entropy = page.locator("#flow figure", { hasText: "Attention entropy by layer" });
  assert.doesNotMatch(await entropy.locator(".note").textContent(), /logarithmic/);
  const before = await entropy.locator("canvas").evaluate((canvas) => canvas.toDataURL());
  await page.getByLabel("At step").fill("0");
  assert.notEqual(await entropy.locator("canvas").evaluate((canvas) => canvas.toDataURL()), before);
});

test("means of several steps are smoothed nearly as the steps themselves", async (t) => {
  const make = () =>
    makeReport({ models: ["pre", "post"], seeds: 3, steps: 1000, withProbes: false });
  const tables = [];
  const pictures = [];
  const calm = inBlocks(make(), 4);
  for (const group of calm.groups) group.extremes = group.extremes.map(() => 2.5);
  for (const [name, report] of [
    ["every step", make()],
    ["blocks", inBlocks(make(), 4)],
    ["blocks without extremes", calm],
  ]) {
    const page = await open(
      t,
      fileOf(name, () => report),
    );
    const note = await page.locator("#loss .note").first().textContent();
    assert.equal(/other points are means of several/.test(note), name.startsWith("blocks"));
    pictures.push(await picture(page, wholeRun));
    const rows = [];
    for (const section of ["#loss", "#outcomes"]) {
      await page.locator(`${section} details.numbers > summary`).first().click();
      const row = page.locator(`${section} details.numbers`).first().locator("tr");
      await row.first().waitFor(); // the table is filled when it is opened
      rows.push(...(await row.allTextContents()));
    }
    tables.push(rows.join("\n"));
  }
  assert.equal(new Set(pictures).size, 3); // the unsmoothed lines have the extremes
  // In the middle the weights of steps within a block are equal.
  const numbers = tables.map((text) => [...text.matchAll(/\d\.\d{3}/g)].map(Number));
  assert.equal(numbers[0].length, numbers[1].length);
  assert.ok(numbers[0].length > 80, `${numbers[0].length} numbers`);
  numbers[0].forEach((value, i) => assert.ok(Math.abs(value - numbers[1][i]) < 0.02));
});

test("dragging zooms, the slider keeps the zoom, and a double click goes back", async (t) => {
  const page = await open(t, study());
  const before = await picture(page, wholeRun);
  const pane = page.locator("#loss .u-over").first();
  await pane.scrollIntoViewIfNeeded();
  const box = await pane.boundingBox();
  await page.mouse.move(box.x + box.width * 0.5, box.y + 50);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.7, box.y + 60, { steps: 4 });
  await page.mouse.up();
  const zoomed = await picture(page, wholeRun);
  assert.notEqual(zoomed, before);
  const slider = page.getByLabel("Smoothing α");
  const value = await slider.inputValue();
  await slider.fill("1");
  await page.waitForFunction(() =>
    document.querySelector("output.alpha").textContent.startsWith("0.9,"),
  );
  await slider.fill(value);
  await page.waitForFunction(
    ([css, old]) => document.querySelector(css).toDataURL() === old,
    [wholeRun, zoomed],
  );
  await pane.dblclick();
  await page.waitForFunction(
    ([css, old]) => document.querySelector(css).toDataURL() === old,
    [wholeRun, before],
  );
});

test("legend buttons hide a model everywhere and bring it back", async (t) => {
  const page = await open(t, study());
  const before = await picture(page, wholeRun);
  const button = page.getByRole("button", { name: /^post/ });
  assert.equal(await button.getAttribute("aria-pressed"), "true");
  await button.focus();
  await page.keyboard.press("Space");
  assert.equal(await button.getAttribute("aria-pressed"), "false");
  assert.notEqual(await picture(page, wholeRun), before);
  assert.equal(await page.locator("canvas.heat:visible").count(), 2);
  await page.keyboard.press("Enter");
  assert.equal(await picture(page, wholeRun), before);
});

test("arrow keys move a cursor through steps, and the values are read out", async (t) => {
  const page = await open(t, study());
  await page.locator("#loss .chart").first().focus();
  await page.keyboard.press("Home");
  await page.keyboard.press("ArrowRight");
  assert.equal(await page.locator(".legend-place").textContent(), "smoothed, step 2");
  assert.ok(await page.getByText("The shaded ends are drawn larger below.").isVisible());
  assert.match(
    await page.locator(".legend [role=status]").textContent(),
    /^smoothed, step 2: pre 3\.\d{3}, post 3\.\d{3}, none \d\.\d{3} \(19 of 20\)/,
  );
  await page.locator("canvas.heat").first().focus();
  await page.keyboard.press("ArrowUp");
  assert.match(
    await page.locator("#flow .readout").first().textContent(),
    /^layers\.0, step 1,000: pre [\d.e−]+ · post [\d.e−]+ · none/,
  );
});

test("pointing at one pane moves the cursor of those that show the same step", async (t) => {
  const page = await open(t, study());
  await page.locator("#loss .chart").nth(1).scrollIntoViewIfNeeded();
  await page.locator("#loss .chart .u-over").nth(1).hover();
  const at = () =>
    page
      .locator("#loss .u-cursor-x")
      .evaluateAll((lines) => lines.map((line) => line.style.transform));
  const [whole, first, last] = await at();
  assert.match(whole, /translate\((\d+)/);
  assert.match(first, /translate\((\d+)/);
  assert.match(last, /translate\(-10px/);
});

test(
  "everything that can be used is reached with Tab, in view and with a " + "visible focus",
  async (t) => {
    const page = await open(t, study());
    const reached = new Set();
    for (let i = 0; i < 120; ++i) {
      await page.keyboard.press("Tab");
      const what = await page.evaluate(() => {
        const node = document.activeElement;
        if (node === document.body) return null;
        const style = getComputedStyle(
          node.matches(".segments input") ? node.nextElementSibling : node,
        );
        return [
          node.matches(".chip") ? "chip" : node.id || node.className || node.tagName,
          style.outlineStyle !== "none",
        ];
      });
      if (!what) break;
      assert.ok(what[1], `${what[0]} shows no focus`);
      reached.add(what[0]);
    }
    for (const what of [
      "skip",
      "quiet theme",
      "sort",
      "chip",
      "alpha",
      "raw",
      "chart",
      "heat",
      "probe-step",
      "sample-seed",
      "SUMMARY",
    ]) {
      assert.ok(reached.has(what), `${what} is not reached; ${[...reached].join(", ")} are`);
    }
  },
);

test("degenerate samples are marked with the reason", async (t) => {
  const page = await open(t, study());
  await page.getByLabel("Seed", { exact: true }).selectOption("2");
  const post = page.locator("#samples .card", { has: page.getByRole("heading", { name: "post" }) });
  assert.equal(await post.locator(".degenerate").count(), 3);
  assert.match(
    await post.textContent(),
    /3 samples, 3 degenerate.*Degenerate: one token makes up 100 %.*\(nothing\)Degenerate: empty.*the same line 5 times/s,
  );
  await page.getByLabel("Seed", { exact: true }).selectOption("13");
  assert.match(
    await page.locator("#samples .card").last().textContent(),
    /No samples: the run diverged/,
  );
});

test("the table sorts by its headings", async (t) => {
  const page = await open(t, study());
  const names = () =>
    page
      .locator(".results tbody th")
      .allTextContents()
      .then((all) => all.map((text) => text.trim().replace(/baseline$/, "")));
  assert.deepEqual(await names(), ["pre", "post", "none"]); // by result: a run of none diverged
  await page.locator(".results").getByRole("button", { name: "last 100" }).click();
  assert.deepEqual(await names(), ["none", "pre", "post"]);
  await page.locator(".results").getByRole("button", { name: "last 100" }).click();
  assert.deepEqual(await names(), ["post", "pre", "none"]);
  assert.equal(await page.locator("th[aria-sort]").getAttribute("aria-sort"), "descending");
  await page.locator(".results").getByRole("button", { name: "model" }).click();
  assert.deepEqual(await names(), ["none", "post", "pre"]);
});

test("the table is copied as CSV and as Markdown", async (t) => {
  const page = await open(
    t,
    fileOf("formula", () => {
      const report = makeReport({ models: ["=1+1", 'a|b,"c"'], seeds: 2, withProbes: false });
      return report;
    }),
  );
  await page.evaluate(() => {
    navigator.clipboard.writeText = async (text) => {
      window.copied = text;
    };
  });
  await page.getByRole("button", { name: "Copy as CSV" }).click();
  const [head, first, second] = (await page.evaluate(() => window.copied)).split("\n");
  assert.match(head, /^model,parameters,runs,first 50,first 50 sd,last 100,last 100 sd,/);
  assert.match(first, /^'=1\+1,25968,2,3\.\d+,0\.\d+,/);
  assert.match(second, /^"a\|b,""c""",25952,2,/);
  await page.getByRole("button", { name: "Copy as Markdown" }).click();
  const lines = (await page.evaluate(() => window.copied)).split("\n");
  assert.match(lines[1], /^\| --- \| ---: \|/);
  assert.match(lines[3], /^\| a\\\|b,"c" \| 25952 \|/);
  assert.equal(await page.getByRole("status").filter({ hasText: "Copied" }).count(), 2);
});

test("every chart has a text alternative and its numbers as a table", async (t) => {
  const page = await open(t, study());
  for (const chart of await page.locator("main canvas.heat, main .chart, main .dot-rows").all()) {
    assert.ok((await chart.getAttribute("aria-label"))?.length > 20);
  }
  for (const figure of await page.locator("section > figure, .pair > figure").all()) {
    const section = figure.locator("xpath=ancestor::section");
    assert.ok((await section.locator("details.numbers").count()) > 0);
  }
  for (const summary of await page.locator("details.numbers > summary").all())
    await summary.click();
  // Each table is filled when it is opened.
  await page.waitForFunction(() =>
    [...document.querySelectorAll("details.numbers")].every((one) => one.querySelector("table")),
  );
  for (const table of await page.locator("details.numbers table").all()) {
    assert.ok((await table.locator("tbody tr").count()) > 1);
    assert.ok((await table.locator("caption").textContent()).length > 5);
  }
});

// Returns a study of more models than there are colours. The last model is the best, and each is
// worse than the next, except for the fourth.
const crowd = () =>
  fileOf("crowd", () => {
    const names = Array.from({ length: 20 }, (_, i) => `placement_with_a_long_name_${i}`);
    const report = makeReport({ models: names, seeds: 2, steps: 200 });
    report.groups.forEach((group, i) => {
      group.result = { mean: 3 - i / 20, low: 2.9 - i / 20, high: 3.1 - i / 20, runs: 2 };
    });
    report.groups[3].result = { mean: 2.99, low: 2.9, high: 3.1, runs: 2 };
    return report;
  });
const numbersOf = (texts) => texts.map((text) => Number(/_(\d+)/.exec(text)[1]));
const chipNames = async (page) =>
  numbersOf(await page.locator(".chip:visible .chip-name").allTextContents());

test("of many models, the best three, the baseline and the worst are drawn", async (t) => {
  const page = await open(t, crowd());
  const order = [19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 2, 1, 3, 0];
  const ranking = page.locator("#results figure").first();
  assert.deepEqual(
    numbersOf(
      await ranking
        .locator(".dot-name")
        .allTextContents()
        .then((all) => all.slice(1)),
    ),
    order,
  );
  assert.deepEqual(await chipNames(page), [19, 18, 17, 0]); // the baseline is also the worst
  assert.match(
    await ranking.locator(".dot-row", { hasText: "baseline" }).last().textContent(),
    /_0baseline/,
  );
  assert.deepEqual(numbersOf(await page.locator(".results tbody th").allTextContents()), order);
  assert.deepEqual(
    numbersOf(await page.locator("#models > .cards h3").allTextContents()),
    [19, 18, 17, 0],
  );
  await page.getByText("The other 16 models").click();
  await page.locator("#models .rest h3").first().waitFor();
  assert.deepEqual(
    numbersOf(await page.locator("#models .rest h3").allTextContents()),
    order.slice(3, -1),
  );
});

test("the ranking chooses up to eight models, each with a colour of its own", async (t) => {
  const page = await open(t, crowd());
  const box = (model) =>
    page.getByLabel(`Draw placement_with_a_long_name_${model}`, { exact: true });
  const before = await picture(page, wholeRun);
  await box(16).focus();
  await page.keyboard.press("Space");
  assert.notEqual(await picture(page, wholeRun), before);
  assert.equal(await page.evaluate(() => document.activeElement.id), "pick-16");
  for (const model of [1, 2, 3]) await box(model).check();
  assert.ok(await box(4).isDisabled());
  assert.match(await page.locator("#results .note[role=status]").textContent(), /^8 are drawn/);
  const strokes = () =>
    page
      .locator(".chip:visible line")
      .evaluateAll((all) => all.map((line) => line.getAttribute("stroke")));
  assert.equal(new Set(await strokes()).size, 8);
  await page.locator(".chip:visible").first().click(); // the best
  assert.deepEqual(await chipNames(page), [18, 17, 16, 2, 1, 3, 0]);
  assert.ok(!(await box(19).isChecked()));
  await box(4).check();
  assert.equal(new Set(await strokes()).size, 8);
  const rows = page
    .locator("#results figure", { hasText: "Differences" })
    .first()
    .locator(".dot-name span[title]");
  assert.equal(await rows.count(), 7); // against the baseline, which has no row
});

test("a study of settings draws each model at its best one", async (t) => {
  const page = await open(
    t,
    fileOf("settings", () => {
      const report = makeReport({
        models: Array.from({ length: 9 }, (_, i) => `m_${i}`),
        seeds: 2,
        withProbes: false,
      });
      report.groups.forEach((group, i) => {
        group.model = i % 3;
        group.cell = Math.floor(i / 3);
        group.result.mean = 3 - i / 10;
      });
      report.models = report.models.slice(0, 3);
      report.cells = ["a", "b", "c"];
      report.best = {
        chosen_with: 1,
        judged_alone: true,
        models: [0, 1, 2].map((model) => ({
          cell: [2, 2, 1][model], // not that of the lowest mean of the third
          runs: 1,
          mean: 2 + model,
          low: null,
          high: null,
        })),
        paired: [1, 2].map((model) => ({
          model,
          against: 0,
          mean: model,
          low: null,
          high: null,
          runs: 1,
        })),
      };
      return report;
    }),
  );
  assert.deepEqual(await chipNames(page), [7, 6, 5]);
  const best = page.locator("#results figure").first();
  assert.match(
    await best.textContent(),
    /Each model at its best setting.*m_6baseline.*m_7.*\+1\.000.*m_5/,
  );
  assert.match(
    await page.locator("#results figure").nth(1).textContent(),
    /the mean over the 1 seed that chose the settings/,
  );
});

test("each model shows the Jacobians of its layers", async (t) => {
  const page = await open(t, study());
  assert.match(
    await page.locator("#models .card").first().textContent(),
    /Jacobian of layer 0: \(I \+ J_mlp\).*Jacobian of layers 1\.\.2, 4: \(I \+ J_mlp J_norm\)/,
  );
});

// Returns a study of two models at four learning rates.
function withRates() {
  const report = makeReport({ models: [..."abcdefgh"], seeds: 1, steps: 30, withProbes: false });
  report.models = report.models.slice(0, 2);
  report.cells = ["0.001", "0.01", "0.1", "1"].map((rate) => `learning_rate=${rate}`);
  report.groups.forEach((group, i) => {
    Object.assign(group, { model: i >> 2, cell: i % 4 });
    group.settings = {
      "train.learning_rate": ["0.001", "0.01", "0.1", "1"][i % 4],
      "model.mlp": "x",
    };
    group.result = { mean: 2 + i, low: 1.5 + i, high: 2.5 + i, runs: 3 };
  });
  report.groups[5].result = { mean: null, low: null, high: null, runs: 0 };
  return report;
}

test("settings with numbers have a chart of the loss by their values", async (t) => {
  const page = await open(t, fileOf("rates", withRates));
  const figure = page.locator("#settings figure");
  assert.equal(await figure.count(), 1);
  assert.equal(await figure.locator("h3").textContent(), "last 100 by learning_rate");
  assert.equal(await figure.locator(".key").textContent(), "ab");
  await figure.locator(".chart").focus();
  await page.keyboard.press("Home");
  await page.keyboard.press("ArrowRight");
  assert.equal(
    await figure.locator(".readout").textContent(),
    "0.01: a 3.000 [2.500, 3.500] · b –",
  );
  await figure.locator("summary").click();
  assert.equal(await figure.locator("tbody tr").count(), 4);
});

test("every figure can be saved as an SVG that has its colours", async (t) => {
  const page = await open(t, study());
  const buttons = await page.getByRole("button", { name: /^Save SVG of / }).all();
  assert.ok(buttons.length > 14);
  const texts = new Map();
  for (const button of buttons) {
    // Chromium drops downloads of a page after ten within a second.
    await page.waitForTimeout(110);
    const [download] = await Promise.all([page.waitForEvent("download"), button.click()]);
    assert.match(download.suggestedFilename(), /^[\w.-]+\.svg$/);
    const text = readFileSync(await download.path(), "utf8");
    texts.set(download.suggestedFilename(), text);
    // An image has no styles but its own.
    const width = await page.evaluate(async (svg) => {
      const image = new Image();
      image.src = `data:image/svg+xml,${encodeURIComponent(svg)}`;
      await image.decode();
      return image.naturalWidth;
    }, text);
    assert.ok(width > 250, `${width}`);
    for (const word of ["pre", "post", "none"]) assert.ok(text.includes(word), word);
    assert.match(text, /="(#00974d|rgb\(0, 151, 77\))"/); // of none, in a shape or in the key
  }
  const curves = texts.get("The_whole_run_1_000_steps.svg");
  for (const look of ['stroke="#1244a9"', 'stroke-dasharray="9 4"', 'fill="#1244a924"', ">1,000<"])
    assert.ok(curves.includes(look), look);
  assert.match(texts.get("Ranking_by_last_100.svg"), /<line class="grid"[^>]* stroke="rgb/);
  assert.match(texts.get("Gradient_norm_layer_by_step.svg"), /href="data:image\/png/);
  for (const [name, title] of [
    ["The_whole_run_1_000_steps", /rotate\(-90\)[^>]*>loss \(nats\)</],
    ["Attention_entropy_by_layer", />attention entropy \(nats\)</],
    ["Ranking_by_last_100", />loss \(nats\)</],
    ["Differences_between_models_last_100", />difference \(nats\)</],
  ])
    assert.match(texts.get(`${name}.svg`), title);
  assert.equal(await page.locator("figure .key").count(), 0);
});

test("every figure can be saved as CSV with all its digits", async (t) => {
  const page = await open(t, study());
  const buttons = await page.getByRole("button", { name: /^Save CSV of / }).all();
  assert.equal(buttons.length, await page.getByRole("button", { name: /^Save SVG of / }).count());
  const texts = new Map();
  for (const button of buttons) {
    await page.waitForTimeout(110); // as above
    const [download] = await Promise.all([page.waitForEvent("download"), button.click()]);
    const text = readFileSync(await download.path(), "utf8");
    assert.ok(text.split("\n").length > 3, download.suggestedFilename());
    assert.doesNotMatch(text, /NaN|undefined|null|Infinity|\[object/);
    texts.set(download.suggestedFilename(), text.split("\n"));
  }
  const curves = texts.get("The_whole_run_1_000_steps.csv");
  assert.match(curves[0], /^step,"pre, unsmoothed",.*,pre,/);
  assert.equal(curves.length, 1 + 1000 + 1);
  const report = makeReport();
  const ranking = texts.get("Ranking_by_last_100.csv");
  assert.match(ranking[0], /^model,mean,95 % from,to,runs,diverged,− baseline,95 % from,to$/);
  assert.deepEqual(
    ranking[1].split(",").slice(0, 3),
    ["pre", report.groups[0].result.mean, report.groups[0].result.low].map((value) =>
      typeof value === "number" ? String(Number(value.toPrecision(12))) : value,
    ),
  );
  const maps = texts.get("Gradient_norm_layer_by_step.csv");
  assert.equal(maps.length, 1 + 3 * 8 + 1);
  assert.match(maps[0], /^layer,model,step 1,step 10,.*,"step 1,000"$/);
});

test("the address opens the card of a model", async (t) => {
  const page = await open(t, crowd());
  const card = (i) => page.locator(`#model-placement_with_a_long_name_${i}`);
  assert.equal(await card(10).count(), 0);
  await page.evaluate(() => (location.hash = "#model-placement_with_a_long_name_10"));
  await card(10).waitFor();
  await page.waitForFunction(() => {
    const node = document.getElementById("model-placement_with_a_long_name_10");
    const { top } = node.getBoundingClientRect();
    return top >= 0 && top < window.innerHeight / 2;
  });
  await page.reload();
  await card(10).waitFor();
  const link = page.locator(".results tbody").getByRole("link", { name: /_19$/ });
  await link.click();
  await page.waitForFunction(() => location.hash === "#model-placement_with_a_long_name_19");
});

test("a search hides the rows of other models in ranking and table", async (t) => {
  const page = await open(t, crowd());
  const shown = async () => [
    await page.locator("#results .with-heads .dot-row[data-name]:visible").count(),
    await page.locator(".results tbody tr:visible").count(),
  ];
  assert.deepEqual(await shown(), [20, 20]);
  await page.getByLabel("Search").fill("PLACEMENT _1");
  assert.deepEqual(await shown(), [11, 11]);
  assert.equal(await page.locator("#results .said").first().textContent(), "11 of 20");
  await page.locator("#pick-12").check(); // draws the ranking again
  assert.deepEqual(await shown(), [11, 11]);
  await page.getByLabel("Search").fill("");
  assert.deepEqual(await shown(), [20, 20]);
  const few = await open(t, study());
  assert.equal(await few.getByLabel("Search").count(), 0);
});
