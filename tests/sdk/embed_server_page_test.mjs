// SPDX-License-Identifier: Apache-2.0
// Tests of the page of examples/embed_server from the reader's view. embed_server_page.sh lists the
// requirements.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";

const { chromium } = createRequire(new URL("../report/", import.meta.url))("playwright-core");
const servers = [];
let browser;

before(async () => {
  // Chromium has no sandbox for root and in many containers, and the page is our own.
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox"] });
});
after(async () => {
  await browser?.close();
  for (const server of servers) server.kill("SIGKILL");
});

async function serve(run, ...flags) {
  const server = spawn(process.env.SERVER, [run, "--port", "0", ...flags]);
  servers.push(server);
  const [line] = await once(server.stdout, "data");
  return /http:\S+/.exec(String(line))[0];
}

// Opens the page. Fails the test if it logs messages or errors, or loads anything that is not the
// server's.
async function open(t, url, options = {}) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  const complaints = [];
  page.on("pageerror", (error) => complaints.push(error.stack));
  page.on("request", (request) => {
    if (!request.url().startsWith(url) && !request.url().startsWith("data:")) complaints.push(request.url());
  });
  await page.goto(url);
  t.after(async () => {
    await context.close();
    assert.deepEqual(complaints, []);
  });
  return page;
}

test("a text is completed from the keyboard alone", async (t) => {
  const page = await open(t, await serve(process.env.RUN));
  await page.waitForFunction(() => document.querySelector("#model").textContent === "names");
  await page.keyboard.type("an"); // the prompt has the focus
  await page.keyboard.press("Tab");
  await page.keyboard.type("6");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Tab");
  await page.keyboard.type("3");
  await page.keyboard.press("Control+Enter");
  await page.waitForFunction(() => document.querySelector("#state").textContent.includes("tokens in"));
  const text = await page.textContent("#text");
  assert.match(text, /^an[a-z]*$/);
  // The button starts a completion with the same seed.
  await page.click("#complete");
  await page.waitForFunction(() => document.querySelector("#state").textContent.includes("tokens in"));
  assert.equal(await page.textContent("#text"), text);
});

test("an error is shown", async (t) => {
  const page = await open(t, await serve(process.env.RUN));
  await page.fill("#prompt", "<b>AN</b>");
  await page.click("#complete");
  await page.waitForFunction(() => document.querySelector("#state").textContent.startsWith("error: prompt"));
  assert.equal(await page.textContent("#text"), "<b>AN</b>"); // shown as text, not interpreted
  assert.equal(await page.isEnabled("#complete"), true);
});

test("text comes as it is drawn, and Escape ends the request", async (t) => {
  const url = await serve(process.env.LONG_RUN, "--requests", "1", "--threads", "1");
  const page = await open(t, url);
  await page.fill("#prompt", "x");
  await page.fill("#max_tokens", "2047");
  // Acts within the page, at the first piece of text: on a busy machine the text may end before this process sees it.
  await page.evaluate(() => {
    const text = document.querySelector("#text");
    globalThis.stopped = new Promise((resolve) => {
      new MutationObserver((_, observer) => {
        if (text.textContent.length <= 1) return;
        observer.disconnect();
        resolve(!document.querySelector("#stop").disabled);
        document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
      }).observe(text, { childList: true, characterData: true, subtree: true });
    });
  });
  await page.click("#complete");
  assert.equal(await page.evaluate(() => globalThis.stopped), true);
  await page.waitForFunction(() => document.querySelector("#state").textContent === "stopped");
  // The only place for a request is free again.
  await page.fill("#max_tokens", "1");
  await page.waitForFunction(async () => {
    document.querySelector("#complete").click();
    await new Promise((done) => setTimeout(done, 100));
    return document.querySelector("#state").textContent.startsWith("1 tokens in");
  });
});

for (const colorScheme of ["light", "dark"]) {
  test(`what is written can be read: ${colorScheme}, and on a phone`, async (t) => {
    const page = await open(t, await serve(process.env.RUN), { colorScheme, viewport: { width: 360, height: 640 } });
    const { overflow, contrasts } = await page.evaluate(() => {
      const luminance = (color) => {
        const [r, g, b] = color.match(/\d+/g).map((c) => {
          const x = Number(c) / 255;
          return x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const ground = (element) => {
        const color = getComputedStyle(element).backgroundColor;
        return color === "rgba(0, 0, 0, 0)" ? ground(element.parentElement) : color;
      };
      const contrasts = {};
      for (const element of document.querySelectorAll("h1, h1 span, label, textarea, input, #complete, #text, p")) {
        const [a, b] = [getComputedStyle(element).color, ground(element)].map(luminance);
        contrasts[element.id || element.tagName] = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      }
      return { overflow: document.documentElement.scrollWidth - innerWidth, contrasts };
    });
    assert.ok(overflow <= 0, `${overflow} pixels are off the screen`);
    for (const [element, contrast] of Object.entries(contrasts)) {
      assert.ok(contrast >= 4.5, `${element} has a contrast of ${contrast.toFixed(1)}`);
    }
  });
}
