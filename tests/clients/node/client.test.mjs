// OpenAI's Node client against the server at HOCKET_URL.
import assert from "node:assert/strict";
import test from "node:test";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.env.HOCKET_URL + "/v1", apiKey: "none", maxRetries: 0 });
const model = "hocket-tiny-qwen3-moe";
const offered = (process.env.HOCKET_OFFERS ?? "tools grammar").split(" ");
const needs = (feature) => ({ skip: !offered.includes(feature) && `this server offers no ${feature}` });
const sum = [{ role: "user", content: "What is 17 + 25?" }];
const weather = [{ role: "user", content: "What is the weather in Paris?" }];
const city = {
  type: "object",
  properties: { city: { type: "string", description: "The name of the city." } },
  required: ["city"],
};
const minutes = { type: "object", properties: { minutes: { type: "integer" } }, required: ["minutes"] };
const functions = [
  { name: "get_weather", description: "Get the weather for a city.", parameters: city },
  { name: "set_timer", description: "Set a timer.", parameters: minutes },
];
const chatTools = functions.map((f) => ({ type: "function", function: f }));
const responseTools = functions.map((f) => ({ type: "function", strict: false, ...f }));

test("chat", async () => {
  const answer = await client.chat.completions.create({ model, messages: sum, temperature: 0 });
  assert.equal(answer.choices[0].message.content, "42");
  assert.equal(answer.usage.completion_tokens, 3);
});

test("chat stream", async () => {
  const stream = await client.chat.completions.create({
    model, messages: sum, temperature: 0, stream: true, stream_options: { include_usage: true },
  });
  let text = "", usage;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta?.content ?? "";
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, "42");
  assert.equal(usage.completion_tokens, 3);
});

test("chat tools, streamed and accumulated by the client", needs("tools"), async () => {
  const stream = client.chat.completions.stream({ model, messages: weather, tools: chatTools, temperature: 0 });
  const message = (await stream.finalChatCompletion()).choices[0].message;
  const call = message.tool_calls[0];
  assert.equal(call.function.name, "get_weather");
  assert.deepEqual(JSON.parse(call.function.arguments), { city: "Paris" });
  const result = { role: "tool", tool_call_id: call.id, content: '{"temperature": 21, "sky": "sunny"}' };
  const second = await client.chat.completions.create({
    model, messages: [...weather, message, result], tools: chatTools, temperature: 0,
  });
  assert.equal(second.choices[0].message.content, "It is 21 degrees and sunny in Paris.");
});

test("completions", async () => {
  const answer = await client.completions.create({ model, prompt: "17 + 25 =", temperature: 0, max_tokens: 4 });
  assert.match(answer.choices[0].text, /42/);
});

test("responses", async () => {
  const answer = await client.responses.create({ model, input: "What is 17 + 25?", temperature: 0 });
  assert.equal(answer.output_text, "42");
  assert.equal((await client.responses.retrieve(answer.id)).output_text, "42");
  const next = await client.responses.create({
    model, input: "What is 1 + 1?", previous_response_id: answer.id, temperature: 0,
  });
  const items = await client.responses.inputItems.list(next.id, { order: "asc" });
  assert.deepEqual(items.data.map((i) => i.role), ["user", "assistant", "user"]);
  await client.responses.delete(answer.id);
  await assert.rejects(client.responses.retrieve(answer.id), OpenAI.NotFoundError);
});

test("responses stream with a call", needs("tools"), async () => {
  const stream = client.responses.stream({ model, input: weather, tools: responseTools, temperature: 0 });
  let deltas = "";
  for await (const event of stream)
    if (event.type === "response.function_call_arguments.delta") deltas += event.delta;
  const final = await stream.finalResponse();
  assert.deepEqual(JSON.parse(deltas), { city: "Paris" });
  assert.equal(final.output[0].arguments, deltas);
});

test("structured output", needs("grammar"), async () => {
  const answer = await client.chat.completions.create({
    model, temperature: 0, max_tokens: 100,
    messages: [{ role: "user", content: "Answer in JSON: the capital of France." }],
    response_format: {
      type: "json_schema",
      json_schema: {
        name: "capital", strict: true,
        schema: {
          type: "object", properties: { city: { type: "string", maxLength: 20 } }, required: ["city"], additionalProperties: false,
        },
      },
    },
  });
  assert.equal(typeof JSON.parse(answer.choices[0].message.content).city, "string");
});

test("errors", async () => {
  await assert.rejects(client.chat.completions.create({ model, messages: sum, temperature: 9 }), (e) => {
    assert.ok(e instanceof OpenAI.BadRequestError);
    assert.equal(e.param, "temperature");
    return true;
  });
  await assert.rejects(client.models.retrieve("another"), OpenAI.NotFoundError);
});

test("an aborted stream", async () => {
  const stream = await client.chat.completions.create({
    model, messages: [{ role: "user", content: "Tell me a story." }], stream: true, ignore_eos: true,
  });
  for await (const _ of stream) break;
  stream.controller.abort();
});
