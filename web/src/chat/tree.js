// A conversation is a tree: an edit or another answer is a branch beside the old one, and nothing is overwritten.
//
//   {id, title, created, changed, system, leaf, nodes: {id: node}}
//   node: {id, parent, role, content, reasoning, calls, callId, tokens, finish, usage, timings, error, created}
//
// Functions return new objects; nothing is changed in place.

export const fresh = () => crypto.randomUUID?.() ?? `${Date.now()}-${Math.random().toString(36).slice(2)}`;

export function newConversation() {
  const now = Date.now();
  return { id: fresh(), title: "", created: now, changed: now, system: "", leaf: null, nodes: {} };
}

// From the first message to the leaf.
export function pathOf(conversation) {
  const path = [];
  for (let id = conversation.leaf; id != null; id = conversation.nodes[id].parent) path.unshift(conversation.nodes[id]);
  return path;
}

export function siblingsOf(conversation, node) {
  return Object.values(conversation.nodes)
    .filter((other) => other.parent === node.parent && other.role === node.role)
    .sort((a, b) => a.created - b.created);
}

// The newest end below a node.
function endBelow(conversation, id) {
  for (;;) {
    const children = Object.values(conversation.nodes).filter((node) => node.parent === id);
    if (children.length === 0) return id;
    id = children.reduce((a, b) => (b.created >= a.created ? b : a)).id;
  }
}

export function switchTo(conversation, id) {
  return { ...conversation, leaf: endBelow(conversation, id) };
}

let lastCreated = 0;
export function addNode(conversation, parent, fields) {
  lastCreated = Math.max(Date.now(), lastCreated + 1);
  const node = { id: fresh(), parent, role: "user", content: "", created: lastCreated, ...fields };
  const title = conversation.title || (node.role === "user" ? node.content.trim().replace(/\s+/g, " ").slice(0, 60) : "");
  return [{ ...conversation, title, leaf: node.id, changed: Date.now(), nodes: { ...conversation.nodes, [node.id]: node } }, node];
}

export function changeNode(conversation, id, change) {
  const node = conversation.nodes[id];
  if (!node) return conversation;
  return { ...conversation, changed: Date.now(), nodes: { ...conversation.nodes, [id]: { ...node, ...change } } };
}

// With all below it. The leaf goes to a sibling, or to the parent.
export function removeNode(conversation, id) {
  const node = conversation.nodes[id];
  const gone = new Set([id]);
  for (let grew = true; grew; ) {
    grew = false;
    for (const other of Object.values(conversation.nodes))
      if (gone.has(other.parent) && !gone.has(other.id)) {
        gone.add(other.id);
        grew = true;
      }
  }
  const nodes = Object.fromEntries(Object.entries(conversation.nodes).filter(([key]) => !gone.has(key)));
  const rest = { ...conversation, nodes, changed: Date.now(), leaf: node.parent };
  const beside = siblingsOf(conversation, node).filter((other) => other.id !== id);
  return beside.length > 0 ? switchTo(rest, beside.at(-1).id) : rest;
}

// As the API takes messages, up to and with the last of `path`.
export function messagesOf(conversation, path) {
  const messages = conversation.system.trim() ? [{ role: "system", content: conversation.system }] : [];
  for (const node of path) {
    const message = { role: node.role, content: node.content };
    if (node.role === "tool") message.tool_call_id = node.callId;
    if (node.reasoning) message.reasoning_content = node.reasoning;
    if (node.calls?.length) {
      message.tool_calls = node.calls.map(({ id, name, text }) => ({ id, type: "function", function: { name, arguments: text } }));
      if (message.content === "") message.content = null;
    }
    messages.push(message);
  }
  return messages;
}

export function asMarkdown(conversation) {
  const names = { user: "You", assistant: "Model", tool: "Tool" };
  const parts = [`# ${conversation.title || "Conversation"}\n`];
  if (conversation.system.trim()) parts.push(`> ${conversation.system.trim().replace(/\n/g, "\n> ")}\n`);
  for (const node of pathOf(conversation)) {
    parts.push(`## ${names[node.role]}\n`);
    if (node.reasoning) parts.push(`<details><summary>Reasoning</summary>\n\n${node.reasoning}\n\n</details>\n`);
    if (node.content) parts.push(`${node.content}\n`);
    for (const call of node.calls ?? []) parts.push(`\`\`\`json\n${call.name} ${call.text}\n\`\`\`\n`);
  }
  return parts.join("\n");
}

// Returns the conversation that was exported, or null. Every node must hang below another one, or be the first.
export function readExport(text) {
  let json;
  try {
    json = JSON.parse(text);
  } catch {
    return null;
  }
  const list = json?.format === "hocket-conversations" && Array.isArray(json.conversations) ? json.conversations : null;
  const isNode = (node, nodes) =>
    typeof node?.id === "string" &&
    typeof node.content === "string" &&
    ["user", "assistant", "tool"].includes(node.role) &&
    (node.parent === null || nodes[node.parent] !== undefined);
  const ends = (conversation) => {
    for (const start of Object.values(conversation.nodes)) {
      let steps = 0;
      for (let id = start.id; id != null; id = conversation.nodes[id].parent) if (++steps > 10_000) return false;
    }
    return true;
  };
  const isGood = (c) =>
    typeof c?.id === "string" &&
    typeof c.nodes === "object" &&
    c.nodes !== null &&
    Object.entries(c.nodes).every(([id, node]) => node?.id === id && isNode(node, c.nodes)) &&
    (c.leaf === null || c.nodes[c.leaf] !== undefined) &&
    ends(c);
  if (list === null || !list.every(isGood)) return null;
  return list.map((c) => ({ ...newConversation(), ...c, id: fresh(), title: String(c.title ?? ""), system: String(c.system ?? "") }));
}

export function asExport(conversations) {
  return JSON.stringify({ format: "hocket-conversations", version: 1, conversations }, null, 1);
}
