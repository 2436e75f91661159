// The settings with which answers are asked for. The server chooses those that are empty.
import { createKept } from "../lib/store.js";

export const sampling = createKept("hocket.sampling", {
  temperature: "",
  top_p: "",
  top_k: "",
  min_p: "",
  max_tokens: "",
  seed: "",
  presence_penalty: "",
  frequency_penalty: "",
  repetition_penalty: "",
  stop: "",
  logprobs: true,
  top_logprobs: 5,
  reasoning_effort: "",
  thinking: "",
  tools: "",
  format: "text",
  schema: "",
});

export const numbers = [
  { name: "temperature", label: "Temperature", low: 0, high: 2, step: 0.05 },
  { name: "top_p", label: "Top p", low: 0.01, high: 1, step: 0.01 },
  { name: "top_k", label: "Top k", low: 0, high: 1000, step: 1 },
  { name: "min_p", label: "Min p", low: 0, high: 1, step: 0.01 },
  { name: "max_tokens", label: "Most tokens", low: 1, high: 1_000_000, step: 1 },
  { name: "seed", label: "Seed", low: -Number.MAX_SAFE_INTEGER, high: Number.MAX_SAFE_INTEGER, step: 1 },
  { name: "presence_penalty", label: "Presence penalty", low: -2, high: 2, step: 0.1 },
  { name: "frequency_penalty", label: "Frequency penalty", low: -2, high: 2, step: 0.1 },
  { name: "repetition_penalty", label: "Repetition penalty", low: 0.01, high: 4, step: 0.05 },
];

function parsed(text, what) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${what} is not JSON: ${error.message}`);
  }
}

// The fields of a request. Throws with a sentence when something typed is not JSON.
export function fieldsOf(s) {
  const fields = {};
  for (const { name } of numbers) if (String(s[name]).trim() !== "") fields[name] = Number(s[name]);
  const stop = s.stop.split("\n").filter((line) => line !== "");
  if (stop.length > 0) fields.stop = stop;
  if (s.logprobs) Object.assign(fields, { logprobs: true, top_logprobs: Number(s.top_logprobs) });
  if (s.reasoning_effort) fields.reasoning_effort = s.reasoning_effort;
  if (s.thinking) fields.chat_template_kwargs = { enable_thinking: s.thinking === "on" };
  if (s.tools.trim()) {
    const tools = parsed(s.tools, "the list of tools");
    fields.tools = (Array.isArray(tools) ? tools : [tools]).map((tool) => (tool.type ? tool : { type: "function", function: tool }));
  }
  if (s.format === "json_object") fields.response_format = { type: "json_object" };
  if (s.format === "json_schema")
    fields.response_format = { type: "json_schema", json_schema: { name: "answer", strict: true, schema: parsed(s.schema || "{}", "the schema") } };
  return fields;
}
