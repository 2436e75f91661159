// The state of the chat: conversations, which of them is shown, and the answer that is coming.
import { createStore } from "../lib/store.js";
import { emptyAnswer } from "./blocks.js";
import { fieldsOf, sampling } from "./settings.js";
import * as shelf from "./shelf.js";
import { streamAnswer } from "./stream.js";
import { addNode, changeNode, messagesOf, newConversation, pathOf, removeNode, switchTo } from "./tree.js";

export const talk = createStore({ all: [], current: newConversation(), streaming: null, problem: null, loaded: false });
let control = null; // ends the answer that is coming

const change = (part) => talk.set((old) => ({ ...old, ...part }));

export async function load() {
  if (talk.get().loaded) return;
  const kept = await shelf.readAll();
  // Messages written meanwhile are newer than those that were kept.
  talk.set((old) => {
    const others = kept.filter((c) => !old.all.some((own) => own.id === c.id));
    return { ...old, loaded: true, all: [...old.all, ...others.sort((a, b) => b.changed - a.changed)] };
  });
}

function keep(conversation) {
  talk.set((old) => {
    const others = old.all.filter((c) => c.id !== conversation.id);
    return { ...old, current: old.current.id === conversation.id ? conversation : old.current, all: [conversation, ...others] };
  });
  shelf.write(conversation);
}

export const isBusy = () => talk.get().streaming !== null;

export function start() {
  stop();
  change({ current: { ...newConversation(), system: talk.get().current.system }, problem: null });
}

export function open(id) {
  if (id === talk.get().current.id) return;
  stop();
  const found = talk.get().all.find((c) => c.id === id);
  if (found) change({ current: found, problem: null });
}

export function rename(id, title) {
  const found = talk.get().all.find((c) => c.id === id);
  if (found) keep({ ...found, title });
}

export function discard(id) {
  if (id === talk.get().current.id) stop();
  talk.set((old) => ({
    ...old,
    all: old.all.filter((c) => c.id !== id),
    current: old.current.id === id ? newConversation() : old.current,
  }));
  shelf.remove(id);
}

export function setSystem(text) {
  const next = { ...talk.get().current, system: text };
  change({ current: next });
  if (next.leaf !== null) keep(next);
}

export function stop() {
  control?.abort();
}

// Asks for an answer below `parent`. `prefix`: tokens that it begins with.
async function answer(conversation, parent, prefix = []) {
  let fields;
  try {
    fields = fieldsOf(sampling.get());
  } catch (error) {
    if (conversation.leaf !== null) keep(conversation);
    change({ problem: { message: error.message, hint: "see the settings of the chat" } });
    return;
  }
  const text = prefix.map((token) => token.text).join("");
  const begun = emptyAnswer(text, prefix);
  const [withNode, node] = addNode(conversation, parent, { role: "assistant", ...begun });
  keep(withNode);
  const request = { messages: messagesOf(conversation, pathOf({ ...conversation, leaf: parent })), ...fields };
  if (text !== "") {
    request.messages.push({ role: "assistant", content: text });
    Object.assign(request, { continue_final_message: true, add_generation_prompt: false });
  }
  control = new AbortController();
  const { signal } = control;
  change({ streaming: { conversation: withNode.id, node: node.id, partial: begun }, problem: null });
  const show = (partial) => talk.set((old) => (old.streaming?.node === node.id ? { ...old, streaming: { ...old.streaming, partial } } : old));
  const whole = await streamAnswer(request, begun, show, signal);
  const home = [talk.get().current, ...talk.get().all].find((c) => c.id === withNode.id);
  talk.set((old) => (old.streaming?.node === node.id ? { ...old, streaming: null } : old));
  if (home) keep(changeNode(home, node.id, whole));
}

export function say(text) {
  const { current } = talk.get();
  const [next, node] = addNode(current, current.leaf, { role: "user", content: text });
  return answer(next, node.id);
}

export const act = {
  edit(node, text) {
    const [next, edited] = addNode(talk.get().current, node.parent, { role: "user", content: text });
    return answer(next, edited.id);
  },
  again: (node) => answer(talk.get().current, node.parent),
  // The answer as it was up to a token, another one there, and on from it.
  branchAt(node, index, text) {
    const other = node.tokens[index].top.find((t) => t.text === text);
    const prefix = [...node.tokens.slice(0, index), { text, bytes: null, logprob: other?.logprob ?? 0, top: node.tokens[index].top }];
    return answer(talk.get().current, node.parent, prefix);
  },
  // Once all calls of an answer are answered, the model goes on.
  answerCall(node, call, text) {
    const { current } = talk.get();
    const [next, added] = addNode(current, current.leaf, { role: "tool", content: text, callId: call.id, toolName: call.name });
    const given = new Set(pathOf(next).filter((n) => n.role === "tool").map((n) => n.callId));
    if (node.calls.every((c) => given.has(c.id))) return answer(next, added.id);
    keep(next);
    return undefined;
  },
  switchTo: (id) => keep(switchTo(talk.get().current, id)),
  remove: (node) => keep(removeNode(talk.get().current, node.id)),
};

export function take(conversations) {
  for (const c of conversations) keep(c);
  if (conversations.length > 0) change({ current: conversations[0], problem: null });
}
