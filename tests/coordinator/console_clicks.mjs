// Does in the console what people do when something has to be decided, and prints what it says, as JSON.
// node console_clicks.mjs FOLDER_WITH_NODE_MODULES CHROMIUM ADDRESS ACT [ARGUMENT]

import { createRequire } from "node:module";
import { join } from "node:path";

const [folder, executablePath, address, act, argument] = process.argv.slice(2);
const require = createRequire(join(folder, "package.json"));
const { chromium } = require("playwright-core");
const flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage", "--no-first-run"];
const browser = await chromium.launch({ executablePath, args: flags });
const page = await browser.newPage();
const errors = [];
page.on("pageerror", (error) => errors.push(error.message));

const open = (name) => page.goto(`${address}/#/${name}`);
const click = (name) => page.getByRole("button", { name, exact: true }).click();
const toast = async (words) => page.locator(".toast:not(:has(.spinner))", { hasText: words }).last().locator("span").first().innerText();
const rows = (label) => page.locator(`[aria-label="${label}"] tbody tr`);
// The dialog's text, after its button was pressed.
const confirmed = async (name) => {
  const dialog = page.locator("dialog");
  await dialog.waitFor();
  const text = await dialog.innerText();
  await dialog.getByRole("button", { name, exact: true }).click();
  await dialog.waitFor({ state: "detached" });
  return text;
};
const until = async (test) => {
  for (let turn = 0; turn < 300; turn++) {
    if (await test()) return;
    await page.waitForTimeout(100);
  }
  throw new Error(`it did not come: ${test}`);
};

const ACTS = {
  async letters() {
    const label = "Dead letters, the newest first";
    await open("letters");
    await until(async () => (await rows(label).count()) === 50);
    await page.getByLabel("Replay", { exact: true }).selectOption({ label: "all" });
    await until(async () => (await rows(label).count()) === 50);
    await click("Older");
    await until(async () => (await rows(label).count()) === 10);
    await click("Newer");
    await until(async () => (await rows(label).count()) === 50);
    await page.getByRole("button", { name: /^Replay letter/ }).first().click();
    const one = await confirmed("Replay");
    const replayed = await toast("replayed");
    await until(async () => (await rows(label).first().innerText()).includes("to offset"));
    await page.getByRole("button", { name: "Dismiss" }).first().click();
    await page.getByLabel("Part of the reason").fill("sku");
    await click("Show");
    await until(async () => (await page.getByRole("heading", { name: "60 letters" }).count()) === 1);
    await click("Replay these …");
    const all = await confirmed("Replay");
    return { one, replayed, all, rest: await toast("59 rows replayed") };
  },
  async paging() {
    const label = "Rows of large";
    await open("views/large");
    await until(async () => (await rows(label).count()) === 50);
    const first = await rows(label).first().innerText();
    await click("Next page");
    await until(async () => (await rows(label).count()) === 20);
    const spans = [await page.getByText(/^rows \d+ to \d+$/).innerText()];
    const last = await page.getByRole("button", { name: "Next page" }).isDisabled();
    await click("Previous page");
    await until(async () => (await rows(label).count()) === 50);
    spans.push(await page.getByText(/^rows \d+ to \d+$/).innerText());
    return { spans, last, same: first === (await rows(label).first().innerText()) };
  },
  async backup() {
    await open("checkpoints");
    await page.getByLabel("Folder on the service's host").fill(argument);
    await click("Back up");
    const said = await toast("Backup of");
    await until(async () => (await rows("Backups, the newest first").count()) === 1);
    return { said, row: await rows("Backups, the newest first").first().innerText() };
  },
  async rescale() {
    await open("workers");
    await page.locator("input[type=number]").fill("3");
    await page.getByText("Warm-up", { exact: true }).click();
    await click("Show what would move");
    await click("Rescale to 3 workers");
    const under = page.getByRole("heading", { name: "Rescale from 2 workers to 3" });
    await under.waitFor();
    await click("Cancel the rescale");
    const said = await toast("The rescale was cancelled");
    await under.waitFor({ state: "detached" });
    await until(async () => (await page.locator(".toast:has(.spinner)").count()) === 0);
    return { said, toasts: await page.locator(".toast").allInnerTexts(), bad: await page.locator(".toast.bad").count() };
  },
  async skip() {
    await open("overview");
    const why = await page.getByRole("alert").first().innerText();
    await click("Skip the failing rows");
    const asked = await confirmed("Skip them");
    const said = await toast("goes on without");
    await page.locator(".badge.good", { hasText: "Running" }).first().waitFor();
    return { why, asked, said };
  },
  async accept() {
    await open("overview");
    const why = await page.getByRole("alert").first().innerText();
    await click("Accept the new output");
    const asked = await confirmed("Accept it");
    const said = await toast("new output");
    await page.locator(".badge.good", { hasText: "Running" }).first().waitFor();
    return { why, asked, said };
  },
};
const did = await ACTS[act]();
await browser.close();
console.log(JSON.stringify({ ...did, errors }));
