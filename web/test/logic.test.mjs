// Tests the code that needs no browser: trees of messages, blocks of a stream, numbers for people, steps in parts.
import assert from "node:assert/strict";
import { webcrypto } from "node:crypto";
import { test } from "node:test";
import { addBlock, emptyAnswer } from "../src/chat/blocks.js";
import { addNode, asExport, asMarkdown, changeNode, messagesOf, newConversation, pathOf, readExport, removeNode, siblingsOf, switchTo } from "../src/chat/tree.js";
import { lastCheck, oneRankEach, ranksOf, stepsOfMoves } from "../src/experts/places.js";
import { bytes, count, duration, percent, quantile } from "../src/lib/format.js";
import { tiersOf } from "../src/live/tiers.js";
import { hiddenShare, lanesOf, rangeOf, split } from "../src/timeline/steps.js";

globalThis.crypto ??= webcrypto; // browsers have it, Node 18 does not

// user a -> answer b; user a2 beside a -> answer c.
function talk() {
  let conversation = newConversation();
  const nodes = {};
  const add = (name, parent, role) => {
    [conversation, nodes[name]] = addNode(conversation, parent === null ? null : nodes[parent].id, { role, content: name });
  };
  add("a", null, "user");
  add("b", "a", "assistant");
  add("a2", null, "user");
  add("c", "a2", "assistant");
  return { conversation, nodes };
}
const words = (conversation) => pathOf(conversation).map((node) => node.content);

test("a tree keeps every branch", () => {
  const { conversation, nodes } = talk();
  assert.deepEqual(words(conversation), ["a2", "c"]);
  assert.equal(conversation.title, "a");
  assert.deepEqual(siblingsOf(conversation, nodes.a2).map((n) => n.content), ["a", "a2"]);
  assert.deepEqual(words(switchTo(conversation, nodes.a.id)), ["a", "b"]);
  const without = removeNode(conversation, nodes.a2.id);
  assert.deepEqual(words(without), ["a", "b"]);
  assert.equal(Object.keys(without.nodes).length, 2);
  assert.deepEqual(words(removeNode(without, nodes.b.id)), ["a"]);
  assert.equal(changeNode(conversation, "nobody", { content: "x" }), conversation);
});

test("messages are what the API takes", () => {
  let { conversation, nodes } = talk();
  conversation = { ...conversation, system: "be brief" };
  conversation = changeNode(conversation, nodes.c.id, { content: "", reasoning: "hm", calls: [{ id: "1", name: "f", text: "{}" }] });
  assert.deepEqual(messagesOf(conversation, pathOf(conversation)), [
    { role: "system", content: "be brief" },
    { role: "user", content: "a2" },
    { role: "assistant", content: null, reasoning_content: "hm", tool_calls: [{ id: "1", type: "function", function: { name: "f", arguments: "{}" } }] },
  ]);
  assert.match(asMarkdown(conversation), /> be brief[\s\S]*## You\n\na2\n\n## Model/);
});

test("only what was exported is imported", () => {
  const { conversation } = talk();
  const [read] = readExport(asExport([conversation]));
  assert.notEqual(read.id, conversation.id);
  assert.deepEqual(words(read), words(conversation));
  for (const text of ["", "{}", "[]", '{"format":"hocket-conversations","conversations":[{"id":"x"}]}']) assert.equal(readExport(text), null);
  const broken = JSON.parse(asExport([conversation]));
  const [first] = Object.values(broken.conversations[0].nodes);
  first.parent = first.id; // its own parent: no way out
  assert.equal(readExport(JSON.stringify(broken)), null);
});

test("blocks add up to an answer", () => {
  const blocks = [
    { model: "tiny", choices: [{ delta: { role: "assistant", content: "" } }] },
    { choices: [{ delta: { reasoning_content: "so" } }] },
    { choices: [{ delta: { content: "Hi" }, logprobs: { content: [{ token: "Hi", logprob: -0.5, bytes: [72, 105], top_logprobs: [{ token: "Ho", logprob: -1 }] }] } }] },
    { choices: [{ delta: { tool_calls: [{ index: 0, id: "c1", function: { name: "f", arguments: "{" } }] } }] },
    { choices: [{ delta: { tool_calls: [{ index: 1, id: "c2", function: { name: "g", arguments: "{}" } }, { index: 0, function: { arguments: "}" } }] } }] },
    { choices: [{ delta: {}, finish_reason: "tool_calls" }] },
    { choices: [], usage: { completion_tokens: 3 }, timings: { ttft_ms: 4 } },
  ];
  const answer = blocks.reduce(addBlock, emptyAnswer());
  assert.deepEqual([answer.content, answer.reasoning, answer.finish, answer.model], ["Hi", "so", "tool_calls", "tiny"]);
  assert.deepEqual(answer.calls, [
    { id: "c1", name: "f", text: "{}" },
    { id: "c2", name: "g", text: "{}" },
  ]);
  assert.deepEqual(answer.tokens, [{ text: "Hi", bytes: [72, 105], logprob: -0.5, top: [{ text: "Ho", logprob: -1 }] }]);
  assert.deepEqual([answer.usage.completion_tokens, answer.timings.ttft_ms], [3, 4]);
});

test("numbers are written for people", () => {
  assert.deepEqual([0.05, 3.14159, 42.42, 314, 2718, 83_000, 7_300_000].map(duration), ["50 µs", "3.14 ms", "42.4 ms", "314 ms", "2.72 s", "1 min 23 s", "2 h 1 min"]);
  assert.deepEqual([bytes(999), bytes(16_900_000), bytes(2.1e9), count(9999), count(1_234_567), percent(0.617), percent(null)], ["999 B", "16.9 MB", "2.1 GB", "9,999", "1.2M", "62 %", "–"]);
  assert.deepEqual([quantile([], 0.5), quantile([1, 2, 3, 4], 0.5), quantile([1, 2, 3, 4], 1)], [null, 2.5, 4]);
});

test("a step's parts are all of its time, and its lanes all of its spans", () => {
  const ops = ["attn_in", "attn_core", "mlp", "gate", "dispatch_start", "shared", "dispatch_wait", "experts", "combine_start", "combine_wait", "delta_core"];
  const step = { compute_us: ops.map((_, i) => i + 1), other_us: 10, exposed_us: 20, waiting_us: 30, idle_us: 5, hidden_us: 60 };
  assert.equal(split(step, ops).reduce((a, b) => a + b), 66 + 65);
  assert.equal(hiddenShare([step]), 0.75);
  assert.equal(hiddenShare([{ hidden_us: 0, exposed_us: 0 }]), null);
  const columns = ["kind", "what", "half", "part", "layer", "from_us", "to_us", "bytes"];
  const spans = [
    ["op", "experts", 1, 0, 2, 5, 9, 0],
    ["other", "schedule", 0, 0, -1, 0, 20, 0],
    ["wire", "dispatch", 1, 0, 2, 3, 6, 512],
    ["exposed", "dispatch", 1, 0, 2, 4, 5, 0],
    ["push", "dispatch", 1, 0, 2, 2, 3, 512],
  ];
  const told = { columns, ranks: [{ dp_rank: 3, from_us: 0, took_us: 20, spans }] };
  const lanes = lanesOf(told);
  assert.deepEqual(lanes.map((lane) => [lane.rank, lane.name, lane.spans.length]), [[3, "compute", 2], [3, "waits", 1], [3, "wire b", 1]]);
  assert.deepEqual(lanes[0].spans.map((span) => span.kind), ["other", "op"]); // spans that hold others are drawn first
  assert.deepEqual(rangeOf(told), [0, 20]);
});

test("an expert is on all ranks that have a place for it in that layer", () => {
  const record = { place_rank: [0, 0, 0, 0, 1, 1, 1, 1], place_expert: [[0, 1, 2, 3, 0, 3, 4, 5], [1, 2, 4, 5, 0, 1, 3, 5]] };
  assert.deepEqual([0, 1, 3, 5].map((expert) => ranksOf(record, 0, expert)), [[0, 1], [0], [0, 1], [1]]);
  assert.deepEqual([0, 1, 3, 5].map((expert) => ranksOf(record, 1, expert)), [[1], [0, 1], [1], [0, 1]]);
  const twice = { place_rank: [0, 0, 1], place_expert: [[2, 2, 2]] };
  assert.deepEqual(ranksOf(twice, 0, 2), [0, 1]);
});

test("ranks are drawn beside experts only where all layers have each on the same one", () => {
  const record = (place_expert, place_rank = [0, 0, 1, 1]) => ({ place_rank, place_expert, expert_rank: [0, 0, 0, 0] });
  assert.deepEqual(oneRankEach(record([[9, 9, 9, 9], [0, 2, 1, 3], [0, 2, 1, 3]]), [1, 2]), [0, 1, 0, 1]);
  assert.equal(oneRankEach(record([[0, 1, 2, 3], [0, 2, 1, 3]]), [0, 1]), null);
  assert.equal(oneRankEach(record([[0, 1, 2, 0, 1, 3]], [0, 0, 0, 1, 1, 1]), [0]), null);
});

test("a step while experts move is shown beside like steps before", () => {
  assert.equal(stepsOfMoves({ steps: 0, step_seconds: 0, usual_seconds: 0 }), null);
  assert.deepEqual(stepsOfMoves({ steps: 50, step_seconds: 0.75, usual_seconds: 0.5 }), { moving: 15, usual: 10, ratio: 1.5 });
});

test("the last check says why experts move or stay", () => {
  const moves = (gain, cost, more = {}) => ({ checks: 3, layers_left: 0, last_check: { balancedness_before: 0.6, balancedness_after: 0.9, gain_seconds: gain, cost_seconds: cost }, ...more });
  assert.equal(lastCheck(moves(9, 1, { checks: 0 })), null);
  assert.deepEqual(lastCheck(moves(9, 1)), { before: 0.6, after: 0.9, gain: 9, cost: 1, why: "Moving saves more than it costs." });
  assert.match(lastCheck(moves(9, 1, { layers_left: 2 })).why, /goes on now/);
  assert.match(lastCheck(moves(1, 9)).why, /would cost more than it saves/);
  assert.match(lastCheck(moves(0, 0)).why, /nothing to gain/);
});

test("tiers of several ranks add up, by name", () => {
  const tier = (name, tokens, unavailable = false) => ({ name, unavailable, tokens_total: tokens, read_bytes_total: 10 * tokens, saved_seconds_total: tokens / 2 });
  assert.deepEqual(tiersOf([{}, { tiers: [] }]), []);
  assert.deepEqual(tiersOf([{ tiers: [tier("file", 4), tier("peer", 0)] }, { tiers: [tier("file", 2, true)] }]), [
    { name: "file", tokens: 6, bytes: 60, saved: 3, unavailable: true },
    { name: "peer", tokens: 0, bytes: 0, saved: 0, unavailable: false },
  ]);
});
