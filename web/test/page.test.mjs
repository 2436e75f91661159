// The page in a headless Chromium, against a server with the bundled model. After each test the console must be clean, and nobody but the
// server may have been asked for anything.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { readFileSync } from "node:fs";
import { closeBrowser, greedyModel, onePage, openBrowser, say, startServer } from "./harness.mjs";

let server;
const timeout = 60_000; // for one test: a hang is a failure
before(async () => {
  server = await startServer(["--ep-size", "2", "--num-threads", "1"], greedyModel());
  await openBrowser();
});
after(async () => {
  await closeBrowser();
  await server?.stop();
});

// One test on one page, which is left with a clean console.
const onPage = (name, path, body, options) => test(name, { timeout }, () => onePage(server, { path, ...options }, body));

test("files come with a policy, tags and times to keep them", async () => {
  const index = await fetch(`${server.url}/`);
  assert.equal(index.status, 200);
  assert.match(index.headers.get("content-type"), /^text\/html/);
  assert.match(index.headers.get("content-security-policy"), /default-src 'none'/);
  assert.equal(index.headers.get("cache-control"), "no-cache");
  const again = await fetch(`${server.url}/`, { headers: { "if-none-match": index.headers.get("etag") } });
  assert.equal(again.status, 304);
  assert.equal(await again.text(), "");
  const [script] = (await index.text()).match(/\/ui\/assets\/[^"]+\.js/);
  const asset = await fetch(server.url + script);
  assert.match(asset.headers.get("cache-control"), /immutable/);
  assert.match(asset.headers.get("content-type"), /^text\/javascript/);
  assert.equal((await fetch(server.url + script, { method: "HEAD" })).headers.get("content-length"), `${(await asset.arrayBuffer()).byteLength}`);
  assert.equal((await fetch(`${server.url}/ui/nothing.js`)).status, 404);
  assert.equal((await fetch(`${server.url}/`, { method: "POST" })).status, 405);
});

onPage("chat answers, and shows how sure it was", "/", async (page) => {
  const answer = await say(page, "What is 17 + 25?");
  assert.equal((await answer.locator(".markdown").innerText()).trim(), "42");
  assert.match(await answer.locator(".facts").innerText(), /18 in.* · 3 out · first token/);
  await answer.hover();
  await answer.getByLabel("Inspect tokens").click();
  assert.equal(await answer.locator(".token").count(), 2);
  await answer.locator(".token").first().click();
  assert.match(await answer.locator(".token-detail-head").innerText(), /Token 1: 4/);
  assert.equal(await answer.locator(".alternatives tr").count(), 5);
});

onPage("another token is a branch that goes on from there", "/", async (page) => {
  const answer = await say(page, "What is 17 + 25?");
  await answer.getByLabel("Inspect tokens").click();
  await answer.locator(".token").first().click();
  const row = answer.locator(".alternatives tr:not(.taken)").first();
  const other = (await row.locator("code").innerText()).trim();
  await row.getByRole("button").click();
  const branch = page.locator(".message.assistant").last();
  await branch.locator(".branches").waitFor();
  assert.match(await branch.locator(".branches").innerText(), /2 \/ 2/);
  assert.ok((await branch.locator(".markdown").innerText()).startsWith(other));
  await branch.getByLabel("Branch before").click();
  assert.equal((await page.locator(".message.assistant .markdown").innerText()).trim(), "42");
});

onPage("answer again, edit and branch, delete", "/", async (page) => {
  const first = await say(page, "What is 17 + 25?");
  await first.getByLabel("Answer again").click();
  await page.locator(".message.assistant .branches").waitFor();
  await page.locator(".message.user").hover();
  await page.locator(".message.user").getByLabel("Edit", { exact: true }).click();
  await page.getByLabel("Edit the message").fill("What is 7 x 8?");
  await page.getByRole("button", { name: "Send as a new branch" }).click();
  await page.locator(".message.assistant .facts").waitFor();
  assert.match(await page.locator(".message.assistant .markdown").innerText(), /^\s*\d+\s*$/);
  assert.match(await page.locator(".message.user .branches").innerText(), /2 \/ 2/);
  await page.locator(".message.user").getByLabel("Branch before").click();
  assert.match(await page.locator(".message.user").innerText(), /17 \+ 25/);
  await page.locator(".message.user").getByLabel("Delete this and what follows").click();
  assert.match(await page.locator(".message.user").innerText(), /7 x 8/);
});

onPage("an answer can be stopped, and what came is kept", "/", async (page) => {
  // An answer that goes on as long as the context, and is read as slowly as one of a large model.
  await page.route("**/v1/chat/completions", (route) => route.continue({ postData: JSON.stringify({ ...route.request().postDataJSON(), ignore_eos: true }) }));
  await page.evaluate(() => {
    const read = ReadableStreamDefaultReader.prototype.read;
    ReadableStreamDefaultReader.prototype.read = async function () {
      await new Promise((resolve) => setTimeout(resolve, 100));
      return read.call(this);
    };
  });
  await page.fill("#composer", "Tell me a story about a fox and a lantern.");
  await page.keyboard.press("Enter");
  const answer = page.locator(".message.assistant");
  await answer.locator(".markdown").waitFor();
  await page.keyboard.press("Escape");
  await answer.locator(".facts").waitFor();
  assert.match(await answer.locator(".facts").innerText(), /stopped by you/);
  assert.ok((await answer.locator(".markdown").innerText()).length > 0);
});

onPage("what is set goes into the request, and conversations outlive a reload", "/", async (page) => {
  await page.getByRole("button", { name: "Settings of the chat", exact: true }).click();
  await page.getByLabel("System prompt").fill("You are brief.");
  await page.getByLabel("Temperature").fill("0");
  await page.getByLabel("Seed").fill("7");
  await page.getByLabel("Stop at, a line each").fill("zzz");
  const asked = page.waitForRequest("**/v1/chat/completions");
  await say(page, "What is 17 + 25?");
  const body = (await asked).postDataJSON();
  assert.deepEqual([body.temperature, body.seed, body.stop, body.top_logprobs], [0, 7, ["zzz"], 5]);
  assert.deepEqual(body.messages[0], { role: "system", content: "You are brief." });
  await page.reload();
  await page.locator(".conversation").click();
  await page.locator(".message.assistant").waitFor();
  assert.equal(await page.locator(".message").count(), 2);
  assert.equal(await page.getByLabel("Seed").inputValue(), "7");
});

onPage("a conversation is exported, and what is imported can do no harm", "/", async (page) => {
  await say(page, "What is 17 + 25?");
  const [saved] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Export all" }).click()]);
  const exported = JSON.parse(readFileSync(await saved.path(), "utf8"));
  assert.equal(exported.format, "hocket-conversations");
  const [conversation] = exported.conversations;
  conversation.title = "Imported";
  conversation.nodes[conversation.leaf].content =
    "<img src=https://example.com/a.png onerror=\"window.harm=1\"><script>window.harm=1</script>\n\n![x](https://example.com/b.png)\n\n" +
    "[go](javascript:window.harm=1) [there](https://example.com)\n\n```js\n<b>code</b>\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |";
  const [chooser] = await Promise.all([page.waitForEvent("filechooser"), page.getByRole("button", { name: "Import", exact: true }).click()]);
  await chooser.setFiles({ name: "c.json", mimeType: "application/json", buffer: Buffer.from(JSON.stringify(exported)) });
  await page.getByText("Imported").first().waitFor();
  const answer = page.locator(".message.assistant");
  await answer.locator("table").waitFor();
  assert.equal(await answer.locator("img, script").count(), 0);
  assert.equal(await answer.locator("pre code").innerText(), "<b>code</b>");
  assert.equal(await answer.locator('a[href^="javascript"]').count(), 0);
  assert.equal(await answer.locator('a[href="https://example.com"]').getAttribute("rel"), "noopener noreferrer nofollow");
  assert.equal(await page.evaluate(() => window.harm), undefined);
  const [other] = await Promise.all([page.waitForEvent("filechooser"), page.getByRole("button", { name: "Import", exact: true }).click()]);
  await other.setFiles({ name: "c.json", mimeType: "application/json", buffer: Buffer.from("[1]") });
  await page.getByText("this file holds no conversations").waitFor();
});

const events = (...blocks) => `${blocks.map((block) => `data: ${typeof block === "string" ? block : JSON.stringify(block)}\n\n`).join("")}`;
const delta = (fields, finish = null) => ({ choices: [{ index: 0, delta: fields, logprobs: null, finish_reason: finish }] });

onPage("reasoning is folded, tools are called and answered", "/", async (page) => {
  const requests = [];
  await page.route("**/v1/chat/completions", (route) => {
    requests.push(route.request().postDataJSON());
    const body =
      requests.length === 1
        ? events(
            delta({ role: "assistant", content: "" }),
            delta({ reasoning_content: "The weather: " }),
            delta({ reasoning_content: "I must look." }),
            delta({ tool_calls: [{ index: 0, id: "call_1", type: "function", function: { name: "get_weather", arguments: "" } }] }),
            delta({ tool_calls: [{ index: 0, function: { arguments: '{"city":' } }] }),
            delta({ tool_calls: [{ index: 0, function: { arguments: '"Oslo"}' } }] }),
            delta({}, "tool_calls"),
            "[DONE]",
          )
        : events(delta({ role: "assistant", content: "It **rains**." }), delta({}, "stop"), "[DONE]");
    return route.fulfill({ status: 200, contentType: "text/event-stream", body });
  });
  await page.getByRole("button", { name: "Settings of the chat", exact: true }).click();
  await page.getByRole("button", { name: "Put in the example" }).click();
  await page.fill("#composer", "How is the weather in Oslo?");
  await page.keyboard.press("Enter");
  const call = page.locator(".call");
  await call.getByRole("textbox").waitFor();
  assert.equal(requests[0].tools[0].function.name, "get_weather");
  assert.deepEqual(JSON.parse(await call.locator("pre").innerText()), { city: "Oslo" });
  const fold = page.getByRole("button", { name: /^Reasoning/ });
  assert.equal(await fold.getAttribute("aria-expanded"), "false");
  await fold.click();
  await page.getByText("The weather: I must look.").waitFor();
  await call.getByRole("textbox").fill('{"rain": true}');
  await call.getByRole("button", { name: "Send" }).click();
  await page.locator(".markdown strong").waitFor();
  const { messages } = requests[1];
  assert.deepEqual(messages.at(-1), { role: "tool", content: '{"rain": true}', tool_call_id: "call_1" });
  assert.deepEqual(messages.at(-2).tool_calls, [{ id: "call_1", type: "function", function: { name: "get_weather", arguments: '{"city":"Oslo"}' } }]);
});

onPage(
  "what the server refuses is said, with what to do",
  "/",
  async (page) => {
    await page.getByRole("button", { name: "Settings of the chat", exact: true }).click();
    await page.getByLabel("Most tokens").fill("999999");
    await page.fill("#composer", "Hello");
    await page.keyboard.press("Enter");
    await page.locator(".message .notice.bad").waitFor();
    assert.match(await page.locator(".message .notice.bad").innerText(), /999999/);
  },
  { expected: [/status of 400/] },
);

onPage("live shows what runs, and ends it", "/#/live", async (page) => {
  await page.getByText("Nothing runs and nothing waits.").waitFor();
  // One long answer after another, until one of them is ended from the page.
  let going = true;
  const isEnded = (text) => text.includes('"finish_reason":"abort"');
  const asking = (async () => {
    for (let text = ""; going && !isEnded(text); ) text = await (await server.ask({ stream: true, max_tokens: 4000 })).text();
  })();
  try {
    await page.locator(".chip").first().waitFor();
    assert.match(await page.locator(".chip").first().innerText(), /answering|reading the prompt|waiting/);
    await page.getByLabel("End this request").first().click();
    await asking; // ends for an aborted answer only
  } finally {
    going = false;
  }
  await page.getByText("Nothing runs and nothing waits.").waitFor();
  assert.equal(await page.locator(".plot canvas").count(), 3);
  assert.match(await page.locator(".figures").innerText(), /median .*ms/);
  assert.equal(await page.locator("section[aria-label=Ranks] tbody tr").count(), 2);
});

onPage("experts are recorded and drawn", "/#/experts", async (page) => {
  await page.getByRole("button", { name: "Record" }).click();
  await page.getByText("No rows yet").waitFor();
  await (await server.ask()).json();
  const heat = page.locator(".heat");
  await heat.waitFor();
  await heat.focus();
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowRight");
  assert.match(await page.locator(".heat-note").innerText(), /expert 1 on rank 0: \d+ rows/);
  assert.ok((await page.locator("section[aria-label=Evenness] tbody tr").count()) > 0);
  await page.getByRole("button", { name: "Stop" }).click();
  await page.getByRole("button", { name: "Record" }).waitFor();
});

const moves = (more) => ({
  checks: 2, rebalances: 1, layers: 3, layers_left: 0, experts: 5, bytes: 2e6, load_seconds: 0.25, failures: 0, last_error: null,
  steps: 50, step_seconds: 0.75, usual_seconds: 0.5,
  last_check: { balancedness_before: 0.62, balancedness_after: 0.91, gain_seconds: 41.2, cost_seconds: 0.2 }, ...more,
});
const card = (page) => page.locator("section[aria-label='Replicas and moves']");
const showsMoves = (name, look, body) =>
  onPage(name, "/", async (page) => {
    await page.route("**/expert_distribution", (route) => route.fulfill({ json: { recording: false, record: null, ...look } }));
    await page.goto(`${server.url}/#/experts`);
    await page.getByText("Nothing is recorded").waitFor();
    await body(page);
  });

showsMoves("where nothing moves and nothing is copied there is no card of it", { replicas: 0, moves: null }, async (page) => assert.equal(await card(page).count(), 0));

showsMoves("replicas that stay say how they would move", { replicas: 12, moves: null }, async (page) => assert.match(await card(page).innerText(), /Replicas: 12 in each layer\. .*--enable-eplb/));

showsMoves("before the first check nothing is said of balance", { replicas: 12, moves: moves({ checks: 0, rebalances: 0, layers: 0, experts: 0 }) }, async (page) => {
  assert.match(await card(page).innerText(), /Replicas: 12 in each layer\. .*have not checked their load yet/);
  assert.doesNotMatch(await card(page).innerText(), / %/);
});

showsMoves("the last check, its reason and all moves are shown", { replicas: 12, moves: moves() }, async (page) => {
  const text = await card(page).innerText();
  for (const fact of [/before\s+62 %/, /after\s+91 %/, /41\.2 s/, /200 ms/, /saves more than it costs/, /12 in each layer/, /2, after 1 of which/, /5, 2\.0 MB in 250 ms/, /15\.0 ms, 1\.50 times the 10\.0 ms before/]) assert.match(text, fact);
  assert.equal(await card(page).getByRole("status").count(), 0);
});

showsMoves("a rebalance that was given up says why", { replicas: 0, moves: moves({ failures: 1, last_error: "a.safetensors is gone" }) }, async (page) => {
  assert.match(await card(page).getByRole("status").innerText(), /given up: 1 of 1\s+a\.safetensors is gone/);
});

test("experts that move while serving show their check and their ranks", { timeout }, async () => {
  const flags = ["--ep-size", "2", "--num-threads", "1", "--combine-groups", "0", "--ep-num-redundant-experts", "4"];
  const moving = await startServer([...flags, "--enable-eplb", "--eplb-rebalance-num-iterations", "4", "--expert-distribution-recorder-mode", "stat"], greedyModel());
  try {
    await (await moving.ask({ max_tokens: 200 })).json();
    await onePage(moving, { path: "/#/experts" }, async (page) => {
      await card(page).getByText("Last check of the ranks' load").waitFor();
      assert.match(await card(page).innerText(), /Ranks even before\s+\d+ %\s+Ranks even after\s+\d+ %/);
      assert.match(await card(page).innerText(), /4 in each layer/);
      const { record } = await (await fetch(`${moving.url}/expert_distribution`)).json();
      const layer = record.logical_count.findIndex((counts) => counts.some((n) => n > 0));
      const places = (expert) => record.place_expert[layer].filter((held) => held === expert).length;
      const copied = record.logical_count[layer].findIndex((_, expert) => places(expert) > 1);
      const heat = page.locator(".heat");
      await heat.focus();
      for (let i = 0; i <= copied; ++i) await page.keyboard.press("ArrowRight");
      await page.getByText(/on ranks 0, 1: /).waitFor();
    });
  } finally {
    await moving.stop();
  }
});

onPage("steps are kept, drawn and saved", "/#/timeline", async (page) => {
  await (await server.ask()).json();
  await page.locator(".step.chosen").waitFor();
  const newest = await page.locator(".step.chosen").getAttribute("aria-label");
  await page.locator(".step.chosen").focus();
  await page.keyboard.press("ArrowLeft");
  await page.getByText("held; the arrow keys").waitFor();
  assert.notEqual(await page.locator(".step.chosen").getAttribute("aria-label"), newest);
  const held = await page.locator(".step").first().getAttribute("aria-label");
  await (await server.ask({ max_tokens: 90 })).json(); // more steps than are kept
  await page.keyboard.press("Home");
  assert.equal(await page.locator(".step.chosen").getAttribute("aria-label"), held);
  const lanes = page.locator(".lanes");
  await lanes.waitFor();
  const box = await lanes.boundingBox();
  let note = "";
  for (let part = 0.02; part < 1 && !/\d (µs|ms)/.test(note); part += 0.02) { // there are gaps between spans
    await page.mouse.move(box.x + box.width * part, box.y + 30);
    note = await page.locator(".heat-note").innerText();
  }
  assert.match(note, /\d (µs|ms)/);
  assert.equal(await page.locator(".account").count(), 2);
  await page.getByLabel("Follow the newest").click();
  await page.getByText("following the newest").waitFor();
  await page.waitForFunction((old) => document.querySelector(".step").getAttribute("aria-label") !== old, held);
  const [saved] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Download" }).click()]);
  const trace = JSON.parse(readFileSync(await saved.path(), "utf8"));
  const steps = trace.traceEvents.filter((event) => event.cat === "step");
  assert.ok(steps.length > 2 && steps.length <= 128, `${steps.length} steps`);
  assert.deepEqual([...new Set(trace.traceEvents.map((event) => event.pid))].sort(), [0, 1]);
});

onPage(
  "Perfetto is asked for nothing before it is clicked, and gets the timeline from this window",
  "/#/timeline",
  async (page, context) => {
    await (await server.ask()).json();
    await page.locator(".step").first().waitFor();
    const site = `<script>addEventListener("message", (e) => { if (e.data === "PING") e.source.postMessage("PONG", e.origin);
      else document.title = new TextDecoder().decode(e.data.perfetto.buffer).slice(0, 20); });</script>`;
    await context.route("https://ui.perfetto.dev/**", (route) => route.fulfill({ contentType: "text/html", body: site }));
    const [other] = await Promise.all([context.waitForEvent("page"), page.getByRole("button", { name: "Open in Perfetto" }).click()]);
    await other.waitForFunction(() => document.title !== "");
    assert.match(await other.title(), /displayTimeUnit/);
  },
  { expected: [/^request: https:\/\/ui\.perfetto\.dev\/$/] },
);

onPage("setup tells of the model, the machine and the settings", "/#/setup", async (page) => {
  await page.getByText("hocket-tiny-qwen3-moe").first().waitFor();
  assert.match(await page.locator("section[aria-label=Machine]").innerText(), /Cores\s+\d/);
  assert.match(await page.locator("section[aria-label=Ranks]").innerText(), /0–7/);
  await page.getByText("prefix indexes").first().waitFor();
  await page.getByLabel("Search the settings").fill("--ep-size");
  assert.equal(await page.locator(".setting").count(), 1);
  assert.match(await page.locator(".setting").innerText(), /--ep-size\s+2/);
});

test("setup tells of drafts where there are some", { timeout }, async () => {
  const drafting = await startServer(["--speculative-algorithm", "NGRAM", "--speculative-num-steps", "2"], greedyModel());
  try {
    await drafting.ask({ max_tokens: 200 });
    await onePage(drafting, { path: "/#/setup" }, async (page) => {
      const card = page.locator("section[aria-label=Speculation]");
      await card.waitFor();
      assert.match(await card.innerText(), /Drafts from\s+text that repeats \(NGRAM\)/);
      assert.match(await card.innerText(), /Accepted\s+\d+ of \d+ drafts/);
      assert.match(await card.innerText(), /Tokens a step\s+[1-3]\.\d\d of an answer with drafts/);
      assert.match(await card.innerText(), /\d drafts? 1 answer of up to/);
    });
  } finally {
    await drafting.stop();
  }
});

onPage("keys go from page to page, and the focus is seen", "/", async (page) => {
  for (const [key, title] of [["2", "Live"], ["3", "Experts"], ["4", "Timeline"], ["5", "Setup"]]) {
    await page.keyboard.press(`Alt+${key}`);
    await page.getByRole("heading", { level: 1, name: title }).waitFor();
    assert.equal(await page.title(), `${title} · hocket`);
  }
  await page.keyboard.press("?");
  await page.getByRole("dialog", { name: "Keys" }).waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await page.keyboard.press("/");
  await page.locator("#composer:focus").waitFor();
});

onPage("light and dark follow the system, or the choice", "/", async (page) => {
  const shade = () => page.evaluate(() => document.documentElement.dataset.theme);
  assert.equal(await shade(), "light");
  await page.emulateMedia({ colorScheme: "dark" });
  await page.waitForFunction(() => document.documentElement.dataset.theme === "dark");
  await page.getByLabel(/^Colours/).click();
  assert.equal(await shade(), "light");
  await page.reload();
  assert.equal(await shade(), "light");
});

// A name for everything that can be used, one main heading, and text that stands out from its ground.
const faults = () => {
  const out = [];
  const named = (element) =>
    element.getAttribute("aria-label") || element.innerText?.trim() || element.labels?.[0]?.innerText?.trim() || element.getAttribute("title") || element.getAttribute("alt");
  for (const element of document.querySelectorAll("button, a, input, select, textarea, [role=application], [role=img]"))
    if (element.checkVisibility({ visibilityProperty: true }) && !named(element)) out.push(`no name: ${element.outerHTML.slice(0, 90)}`);
  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) out.push(`id twice: ${id}`);
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (text) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].map((n) => n / 255);
  };
  const over = ([r, g, b, a], [R, G, B]) => [r * a + R * (1 - a), g * a + G * (1 - a), b * a + B * (1 - a), 1];
  const ground = (element) => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) layers.unshift(rgba(getComputedStyle(e).backgroundColor));
    return layers.reduce((below, above) => over(above, below), [1, 1, 1, 1]);
  };
  const light = ([r, g, b]) => [r, g, b].map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  for (const element of document.querySelectorAll("main *, nav *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim() !== "");
    if (!own || element.closest(":disabled, svg, .visually-hidden, .message-buttons") || !element.checkVisibility({ visibilityProperty: true })) continue;
    const below = ground(element);
    const [a, b] = [light(over(rgba(getComputedStyle(element).color), below)), light(below)].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < 4.5) out.push(`contrast ${contrast.toFixed(2)}: ${element.className} ${element.innerText.slice(0, 40)}`);
  }
  return out;
};

for (const colorScheme of ["light", "dark"])
  onPage(
    `all that can be used has a name, and all text can be read, ${colorScheme}`,
    "/",
    async (page) => {
      await say(page, "What is 17 + 25?");
      for (const name of ["chat", "live", "experts", "timeline", "setup"]) {
        await page.goto(`${server.url}/#/${name}`);
        if (name !== "chat") await page.locator(".card, .tile, .empty").first().waitFor();
        await page.waitForTimeout(150);
        assert.deepEqual(await page.evaluate(faults), [], name);
        if (name !== "chat") assert.equal(await page.locator("h1").count(), 1);
      }
    },
    { colorScheme },
  );

onPage(
  "on a phone nothing is wider than the screen",
  "/",
  async (page) => {
    await say(page, "Tell me a story about a fox and a lantern.");
    await page.locator(".message.assistant").last().getByLabel("Inspect tokens").click();
    for (const name of ["chat", "live", "experts", "timeline", "setup"]) {
      await page.goto(`${server.url}/#/${name}`);
      await page.waitForTimeout(500);
      const wide = await page.evaluate(() => [...document.querySelectorAll("html, main, .messages")].filter((e) => e.scrollWidth > e.clientWidth + 1).flatMap((e) => [...e.querySelectorAll("*")].filter((c) => c.getBoundingClientRect().right > innerWidth + 1).map((c) => `${c.tagName} ${c.className}`)));
      assert.deepEqual(wide, [], name);
    }
    await page.goto(`${server.url}/#/chat`);
    await page.getByRole("button", { name: "Conversations", exact: true }).click();
    await page.locator(".conversation").click();
    await page.locator(".message.assistant").waitFor();
  },
  { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true },
);

test("a server with a key gives the page to all, and its data to who has the key", { timeout }, async () => {
  const locked = await startServer(["--api-key", "open sesame", "--overlap-schedule", "on"], greedyModel());
  try {
    await onePage(locked, { path: "/#/live", expected: [/status of 401/] }, async (page) => {
      await page.getByRole("dialog", { name: "This server needs a key" }).waitFor();
      await page.getByLabel("Key", { exact: true }).fill("wrong");
      await page.getByRole("button", { name: "Use it" }).click();
      await page.getByText("this is not a key of this server").first().waitFor();
      await page.getByLabel("Key", { exact: true }).fill("open sesame");
      await page.getByRole("button", { name: "Use it" }).click();
      await page.getByText("Nothing runs and nothing waits.").waitFor();
      await page.goto(`${locked.url}/#/chat`);
      const answer = await say(page, "What is 17 + 25?");
      assert.equal((await answer.locator(".markdown").innerText()).trim(), "42");
    });
  } finally {
    await locked.stop();
  }
});
