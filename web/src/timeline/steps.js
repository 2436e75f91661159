// Steps as /steps gives them (docs/api.md, "What the page reads"), in the parts that are drawn.

// The parts of a step's time, in the order in which they are stacked.
export const parts = [
  { name: "attention", tone: "op-attention", ops: ["attn_in", "attn_core", "delta_core"] },
  { name: "dense layers", tone: "op-mlp", ops: ["mlp"] },
  { name: "gate", tone: "op-gate", ops: ["gate"] },
  { name: "experts", tone: "op-experts", ops: ["experts", "shared"] },
  { name: "sending, receiving", tone: "op-move", ops: ["dispatch_start", "dispatch_wait", "combine_start", "combine_wait"] },
  { name: "outside the layers", tone: "op-other" },
  { name: "waited for transfers", tone: "op-exposed" },
  { name: "waited for ranks", tone: "op-waiting" },
  { name: "unaccounted", tone: "op-idle" },
];
export const wireTone = "op-wire";

const toneByOp = Object.fromEntries(parts.flatMap((part) => (part.ops ?? []).map((op) => [op, part.tone])));
export const toneOf = (kind, what) => ({ op: toneByOp[what], other: "op-other", exposed: "op-exposed", waiting: "op-waiting", wire: wireTone })[kind];

// Microseconds by part.
export function split(step, ops) {
  const compute = (names) => names.reduce((all, op) => all + (step.compute_us[ops.indexOf(op)] ?? 0), 0);
  return parts.map((part) => {
    if (part.ops) return compute(part.ops);
    return { "op-other": step.other_us, "op-exposed": step.exposed_us, "op-waiting": step.waiting_us, "op-idle": step.idle_us }[part.tone];
  });
}

export const hiddenShare = (steps) => {
  const hidden = steps.reduce((all, s) => all + s.hidden_us, 0);
  const exposed = steps.reduce((all, s) => all + s.exposed_us, 0);
  return hidden + exposed > 0 ? hidden / (hidden + exposed) : null;
};

// The lanes of a step: {rank, name, spans: [{kind, what, half, part, layer, from, to, bytes}]}.
export function lanesOf(step) {
  const at = Object.fromEntries(step.columns.map((name, i) => [name, i]));
  const lanes = [];
  for (const rank of step.ranks) {
    const mine = new Map();
    const lane = (name, order) => {
      if (!mine.has(name)) mine.set(name, { rank: rank.dp_rank, name, order, spans: [] });
      return mine.get(name);
    };
    lane("compute", 0);
    for (const row of rank.spans) {
      const span = { kind: row[at.kind], what: row[at.what], half: row[at.half], part: row[at.part], layer: row[at.layer], from: row[at.from_us], to: row[at.to_us], bytes: row[at.bytes] };
      if (span.kind === "op" || span.kind === "other") lane("compute", 0).spans.push(span);
      else if (span.kind === "exposed" || span.kind === "waiting") lane("waits", 1).spans.push(span);
      else if (span.kind === "wire") lane(`wire ${span.half === 0 ? "a" : "b"}${span.part > 0 ? span.part : ""}`, 2 + 8 * span.half + span.part).spans.push(span);
    }
    // Spans of other work contain operations, which are drawn over them.
    lane("compute", 0).spans.sort((a, b) => (a.kind === "other" ? 0 : 1) - (b.kind === "other" ? 0 : 1));
    lanes.push(...[...mine.values()].sort((a, b) => a.order - b.order));
  }
  return lanes;
}

export function rangeOf(step) {
  const from = Math.min(...step.ranks.map((rank) => rank.from_us));
  const to = Math.max(...step.ranks.map((rank) => rank.from_us + rank.took_us));
  return [from, to];
}
