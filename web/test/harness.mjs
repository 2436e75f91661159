// A server with the bundled model, and a browser that watches itself: what it logs, and whom it asks.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createServer } from "node:net";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const root = fileURLToPath(new URL("../..", import.meta.url));
const binary = process.env.HOCKET_BIN ?? `${root}build/release/hocket`;
const model = "models/hocket-tiny-qwen3-moe";

function freePort() {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.listen(0, "127.0.0.1", () => {
      const { port } = probe.address();
      probe.close(() => resolve(port));
    });
  });
}

export async function startServer(...flags) {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const child = spawn(binary, ["serve", "--model-path", model, "--port", `${port}`, ...flags], { cwd: root, stdio: ["ignore", "pipe", "pipe"] });
  let log = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (bytes) => (log += bytes));
  const ended = new Promise((resolve) => child.on("exit", resolve));
  for (let i = 0; i < 600; ++i) {
    if (child.exitCode !== null) throw new Error(`the server ended:\n${log}`);
    try {
      if ((await fetch(`${url}/readyz`)).ok) break;
    } catch {
      // not listening yet
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return {
    url,
    log: () => log,
    stop: async () => {
      child.kill("SIGTERM");
      await ended;
    },
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
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] });
}
export async function closeBrowser() {
  await browser?.close();
}

// A page of its own, with nothing kept from another. `end` says what went wrong meanwhile.
export async function openPage(server, path = "/", options = {}) {
  const { expected = [], ...rest } = options;
  const context = await browser.newContext({ viewport: { width: 1280, height: 820 }, acceptDownloads: true, ...rest });
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  const troubles = [];
  const note = (what) => {
    if (!expected.some((pattern) => pattern.test(what))) troubles.push(what);
  };
  page.on("console", (message) => note(`console ${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => note(`error: ${error.stack}`));
  context.on("request", (request) => {
    if (!request.url().startsWith(server.url) && !/^(data|blob):/.test(request.url())) note(`request: ${request.url()}`);
  });
  await page.goto(server.url + path);
  return {
    page,
    context,
    end: async () => {
      await context.close();
      assert.deepEqual(troubles, []);
    },
  };
}

export async function say(page, text) {
  await page.fill("#composer", text);
  await page.keyboard.press("Enter");
  const answer = page.locator(".message.assistant").last();
  await answer.locator(".facts").waitFor();
  return answer;
}
