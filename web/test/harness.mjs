// A server with the bundled model, and a browser that watches itself: what it logs, and whom it asks.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const root = fileURLToPath(new URL("../..", import.meta.url));
const binary = process.env.HOCKET_BIN ?? `${root}build/release/hocket`;
const bundled = `${root}models/hocket-tiny-qwen3-moe`;
const running = new Set(); // servers, until they have ended
const folders = []; // made here
process.on("exit", () => {
  for (const child of running) child.kill("SIGKILL");
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

// The bundled model, which by itself draws its tokens, as one that takes the likeliest: the same question has the same answer.
export function greedyModel() {
  folders.push(mkdtempSync(join(tmpdir(), "hocket-model-")));
  const folder = join(folders.at(-1), "hocket-tiny-qwen3-moe");
  mkdirSync(folder);
  for (const name of readdirSync(bundled)) if (name !== "generation_config.json") symlinkSync(join(bundled, name), join(folder, name));
  writeFileSync(join(folder, "generation_config.json"), '{"eos_token_id": [2041, 2039], "temperature": 0}');
  return folder;
}

// Returns a free port below those that the kernel gives to clients, of which tests beside this one have many. None comes twice: the
// server that was given one may not listen yet.
let nextPort = 8000 + (process.pid % 1000);
async function freePort() {
  for (;;) {
    const port = nextPort++;
    const probe = createServer();
    const isFree = await new Promise((resolve) => {
      probe.on("error", () => resolve(false));
      probe.listen(port, "127.0.0.1", () => probe.close(() => resolve(true)));
    });
    if (isFree) return port;
  }
}

async function isReady(url) {
  try {
    return (await fetch(`${url}/readyz`)).ok;
  } catch {
    return false; // not listening yet
  }
}

export async function startServer(flags, model = bundled) {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const child = spawn(binary, ["serve", "--model-path", model, "--port", `${port}`, ...flags], { cwd: root, stdio: ["ignore", "pipe", "pipe"] });
  running.add(child);
  let log = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (bytes) => (log += bytes));
  const ended = new Promise((resolve) => child.on("exit", resolve)).then(() => running.delete(child));
  const stop = async () => {
    child.kill("SIGTERM");
    const late = setTimeout(() => child.kill("SIGKILL"), 5000); // a failed test may have left something that still runs
    await ended;
    clearTimeout(late);
  };
  for (const until = Date.now() + 30_000; !(await isReady(url)); ) {
    if (child.exitCode !== null || Date.now() > until) {
      await stop();
      throw new Error(`the server did not begin:\n${log}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return {
    url,
    log: () => log,
    stop,
    // Greedy, with as many tokens as asked for, whatever the model would like.
    ask: (fields = {}, headers = {}) =>
      fetch(`${url}/v1/chat/completions`, {
        method: "POST",
        headers,
        body: JSON.stringify({ messages: [{ role: "user", content: "Tell me a story about a fox and a lantern." }], temperature: 0, ignore_eos: true, max_tokens: 24, ...fields }),
      }),
  };
}

let browser = null;
export async function openBrowser() {
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"] });
}
export async function closeBrowser() {
  await browser?.close();
}

// A page of its own, with nothing kept from another and nothing that moves, while `body` runs. Fails where something went wrong on it.
export async function onePage(server, { path = "/", expected = [], ...options }, body) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 820 }, acceptDownloads: true, reducedMotion: "reduce", ...options });
  const troubles = [];
  const note = (what) => {
    if (!expected.some((pattern) => pattern.test(what))) troubles.push(what);
  };
  try {
    const page = await context.newPage();
    page.setDefaultTimeout(15_000);
    page.on("console", (message) => note(`console ${message.type()}: ${message.text()}`));
    page.on("pageerror", (error) => note(`error: ${error.stack}`));
    context.on("request", (request) => {
      if (!request.url().startsWith(server.url) && !/^(data|blob):/.test(request.url())) note(`request: ${request.url()}`);
    });
    await page.goto(server.url + path);
    await body(page, context);
  } finally {
    await context.close();
  }
  assert.deepEqual(troubles, []);
}

export async function say(page, text) {
  await page.fill("#composer", text);
  await page.keyboard.press("Enter");
  const answer = page.locator(".message.assistant").last();
  await answer.locator(".facts").waitFor();
  return answer;
}
