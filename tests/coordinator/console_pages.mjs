// Opens every page of a console in light, in dark and at 390 px, and prints what it finds as JSON: one object a page.
// node console_pages.mjs FOLDER_WITH_NODE_MODULES CHROMIUM ADDRESS [FOLDER_FOR_SCREENSHOTS]

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const [folder, executablePath, address, shots] = process.argv.slice(2);
const require = createRequire(join(folder, "package.json"));
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const PAGES = {
  overview: ".chart .stroke", dataflow: ".box.view", "tables/orders": "td", views: "td a", "views/large": "td .cell", sql: "#sql",
  letters: "td code", checkpoints: ".facts", workers: "td .meter", logs: "td time", settings: "td code",
};
const MODES = {
  light: { colorScheme: "light", viewport: { width: 1360, height: 900 } },
  dark: { colorScheme: "dark", viewport: { width: 1360, height: 900 } },
  phone: { colorScheme: "light", viewport: { width: 390, height: 844 } },
};
const flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage", "--no-first-run"];
const browser = await chromium.launch({ executablePath, args: flags });
const found = [];
for (const [mode, options] of Object.entries(MODES)) {
  const context = await browser.newContext({ ...options, bypassCSP: false });
  const page = await context.newPage();
  const errors = [];
  const foreign = [];
  page.on("console", (message) => { if (message.type() === "error") errors.push(message.text()); });
  page.on("pageerror", (error) => errors.push(error.message));
  page.on("request", (request) => { if (!request.url().startsWith(address) && !/^(data|blob):/.test(request.url())) foreign.push(request.url()); });
  for (const [name, sign] of Object.entries(PAGES)) {
    await page.goto(`${address}/#/${name}`);
    await page.locator(sign).first().waitFor({ state: "attached", timeout: 30_000 });
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    await page.evaluate(axe);
    const checked = await page.evaluate(() => axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"] }));
    const faults = checked.violations.map((each) => `${each.id}: ${each.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ")}`);
    if (shots) await page.screenshot({ path: join(shots, `${mode}-${name.replace("/", "-")}.png`), fullPage: true });
    found.push({ mode, name, title: await page.locator("h1").innerText(), wide, faults, errors: errors.splice(0), foreign: foreign.splice(0) });
  }
  await context.close();
}

// What people do: a query and its error, an operator of the dataflow by keyboard, a preview of a rescale.
const page = await browser.newPage();
await page.goto(`${address}/#/sql`);
const ask = async (sql) => {
  await page.fill("#sql", sql);
  await page.keyboard.press("Control+Enter");
};
await ask('SELECT count(*) AS number FROM "large"');
const answer = await page.locator('[aria-label="Answer"] td').first().innerText();
await page.getByRole("button", { name: "Show the plan" }).click();
const plan = await page.locator('[aria-label="Plan of the query"]').innerText();
await ask("SELECT nothing");
await page.locator(".problem").waitFor();
const left = await page.locator('[aria-label="Answer"]').count();
const past = await page.locator(".history li").count();
await page.goto(`${address}/#/dataflow`);
await page.locator(".box.operator").first().focus();
await page.keyboard.press("Enter");
const profile = await page.locator(".profile").innerText();
await page.goto(`${address}/#/workers`);
await page.locator("input[type=number]").fill("3");
await page.getByRole("button", { name: "Show what would move" }).click();
const planned = await page.locator(".trouble.info").innerText();
await page.goto(`${address}/#/views/large`);
await page.getByLabel("Search in all columns").fill("700");
await page.getByRole("button", { name: "Search" }).click();
await page.locator('[aria-label="Rows of large"] td').first().waitFor();
await browser.close();
console.log(JSON.stringify({ pages: found, did: { answer, plan, left, past, profile, planned } }));
