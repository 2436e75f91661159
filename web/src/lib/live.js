// Polls what the server is doing, and keeps the last minutes of it.
import { getJson } from "./api.js";
import { createStore } from "./store.js";

const KEPT_S = 300;
export const live = createStore({ now: null, error: null, history: [], ended: [] });
let period = 4000;
let timer = null;
let asking = false;

const sum = (ranks, name) => ranks.reduce((all, rank) => all + rank[name], 0);

function totals(now) {
  const { ranks } = now;
  const pages = (name) => ranks.reduce((all, rank) => all + rank.pages[name], 0);
  return {
    t: now.clock_seconds,
    running: sum(ranks, "running"),
    waiting: sum(ranks, "waiting") + sum(ranks, "held"),
    prompt: sum(ranks, "prompt_tokens_total"),
    cached: sum(ranks, "cached_tokens_total"),
    generated: sum(ranks, "generated_tokens_total"),
    pages: pages("all"),
    pagesCached: pages("cached"),
    pagesPrivate: pages("private"),
    hidden: sum(ranks, "hidden_seconds_total"),
    exposed: sum(ranks, "exposed_seconds_total"),
  };
}

// Rates from one look to the next. A server that began anew counts from nothing.
function withRates(point, before) {
  const per = (name) => {
    const s = before ? point.t - before.t : 0;
    return s > 0 && point[name] >= before[name] ? (point[name] - before[name]) / s : null;
  };
  const cached = per("cached");
  const prompt = per("prompt");
  return { ...point, outRate: per("generated"), inRate: prompt === null ? null : Math.max(0, prompt - cached), cachedRate: cached };
}

function add(now) {
  live.set((old) => {
    const before = old.history.at(-1);
    const anew = before !== undefined && now.clock_seconds < before.t;
    const kept = anew ? [] : old.history.filter((point) => now.clock_seconds - point.t < KEPT_S);
    const point = withRates(totals(now), anew ? null : before);
    const news = new Map((anew ? [] : old.ended).map((text) => [text.number, text]));
    for (const text of now.ended) if (!news.has(text.number)) news.set(text.number, text);
    return { now, error: null, history: [...kept, point], ended: [...news.values()].slice(-240) };
  });
}

async function look() {
  if (asking) return;
  asking = true;
  try {
    add(await getJson("/live"));
  } catch (error) {
    live.set((old) => ({ ...old, error }));
  }
  asking = false;
}

function again() {
  clearTimeout(timer);
  timer = setTimeout(async () => {
    if (!document.hidden) await look();
    again();
  }, period);
}

export function beginLooking() {
  look();
  again();
}

// While the page is shown that lives of it; else now and then, for the light in the corner.
export function lookOften(often) {
  period = often ? 1000 : 4000;
  look();
  again();
}

export const lookNow = look;
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) look();
});
