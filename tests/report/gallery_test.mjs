// SPDX-License-Identifier: Apache-2.0
// Tests of examples/gallery.html, which tools/make_placement_gallery.py writes.
import assert from "node:assert/strict";
import { readdirSync, readFileSync, statSync } from "node:fs";
import test from "node:test";
import { fileURLToPath } from "node:url";
import { open } from "./browser.mjs";

const root = new URL("../../", import.meta.url);
const file = new URL("examples/gallery.html", root);
const openGallery = (t, options) => open(t, file.href, { ready: ".card", ...options });
const shown = (page) => page.locator(".card:visible h3 a").allTextContents();

test("the gallery has a card for every placement and norm, in one small file", async (t) => {
  const page = await openGallery(t);
  const placements = readdirSync(fileURLToPath(new URL("plugins/placements", root)));
  for (const name of placements) {
    const card = page.locator(`#placement-${name.replace(".pbtxt", "")}`);
    assert.equal(await card.locator(".equations, .sources li").count() > 1, true, name);
    const text = readFileSync(new URL(`plugins/placements/${name}`, root), "utf8");
    assert.equal(await card.locator(".file").textContent(), text, name);
  }
  assert.equal(await page.locator("[id^=norm-]").count(), 12);
  assert.ok((await page.locator(".picture svg").count()) >= placements.length - 1);
  assert.ok(statSync(fileURLToPath(file)).size < 3e6);
});

test("the gallery is searched by words and by class", async (t) => {
  const page = await openGallery(t);
  await page.getByLabel("Search").fill("deepnet 2203.00555");
  assert.deepEqual(await shown(page), ["deepnorm"]);
  assert.match(await page.locator("#count").textContent(), /^1 of \d+$/);
  await page.getByRole("button", { name: "helps everywhere" }).click();
  const count = Number(await page.evaluate(() => document.querySelector(".find").nextSibling.data));
  assert.equal((await shown(page)).length, count);
  assert.equal(await page.getByLabel("Search").inputValue(), "");
});

test("a card copies its file and enlarges its picture", async (t) => {
  const page = await openGallery(t);
  await page.evaluate(() => {
    navigator.clipboard.writeText = async (text) => (window.copied = text);
  });
  const card = page.locator("#placement-keel");
  await card.getByRole("button", { name: "Copy as file" }).click();
  assert.match(await page.evaluate(() => window.copied), /^placement \{\n  name: "keel"/);
  assert.equal(await card.getByRole("status").textContent(), "Copied");
  const width = async () => (await card.boundingBox()).width;
  const before = await width();
  await card.locator(".picture").click();
  assert.ok((await width()) > 2 * before);
  await card.locator(".picture").click();
  assert.equal(await width(), before);
});

for (const colorScheme of ["light", "dark"])
  test(`the gallery fits a phone in the ${colorScheme} theme`, async (t) => {
    const options = { viewport: { width: 390, height: 800 }, isMobile: true, colorScheme };
    const page = await openGallery(t, options);
    assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 390);
    const dark = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    assert.equal(dark, colorScheme === "dark" ? "rgb(20, 23, 26)" : "rgb(251, 251, 249)");
  });
