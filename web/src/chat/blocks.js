// Blocks of a stream, gathered into what a node of the conversation holds.

function addCalls(calls, deltas) {
  const next = [...calls];
  for (const delta of deltas) {
    const old = next[delta.index] ?? { id: "", name: "", text: "" };
    next[delta.index] = {
      id: delta.id ?? old.id,
      name: old.name + (delta.function?.name ?? ""),
      text: old.text + (delta.function?.arguments ?? ""),
    };
  }
  return next;
}

function tokenOf(entry) {
  return { text: entry.token, bytes: entry.bytes ?? null, logprob: entry.logprob, top: entry.top_logprobs.map((t) => ({ text: t.token, logprob: t.logprob })) };
}

// Returns the answer as it is known after one more block.
export function addBlock(answer, block) {
  const next = { ...answer };
  const choice = block.choices?.[0];
  const delta = choice?.delta;
  if (delta?.content) next.content += delta.content;
  const reasoning = delta?.reasoning_content ?? delta?.reasoning;
  if (reasoning) next.reasoning += reasoning;
  if (delta?.tool_calls) next.calls = addCalls(next.calls, delta.tool_calls);
  if (choice?.logprobs?.content) next.tokens = next.tokens.concat(choice.logprobs.content.map(tokenOf));
  if (choice?.finish_reason) next.finish = choice.finish_reason;
  if (block.usage) next.usage = block.usage;
  if (block.timings) next.timings = block.timings;
  if (block.model) next.model = block.model;
  return next;
}

export const emptyAnswer = (content = "", tokens = []) => ({ content, reasoning: "", calls: [], tokens, finish: null, usage: null, timings: null, error: null });
