// Reads the places of experts, and the gain of moving them, out of /expert_distribution.

// Ranks that hold the expert in this layer, ascending: several if it has replicas.
export function ranksOf(record, layer, expert) {
  const ranks = record.place_expert[layer].flatMap((held, place) => (held === expert ? [record.place_rank[place]] : []));
  return [...new Set(ranks)].sort((a, b) => a - b);
}

// The rank of each expert; null if layers have it on different ranks, or on several.
export function oneRankEach(record, layers) {
  const [first] = layers;
  const alike = layers.every((layer) => record.place_expert[layer].every((expert, place) => expert === record.place_expert[first][place]));
  if (!alike || record.place_rank.length > record.expert_rank.length) return null;
  return record.expert_rank.map((_, expert) => ranksOf(record, first, expert)[0]);
}

// The time of a step while experts move, and of like steps before, in ms; null if no step was compared.
export function stepsOfMoves(moves) {
  if (moves.steps === 0) return null;
  return { moving: (1000 * moves.step_seconds) / moves.steps, usual: (1000 * moves.usual_seconds) / moves.steps, ratio: moves.step_seconds / moves.usual_seconds };
}

// The last check of the ranks' work, and what follows from it; null if there was none yet.
export function lastCheck(moves) {
  if (moves.checks === 0) return null;
  const { balancedness_before: before, balancedness_after: after, gain_seconds: gain, cost_seconds: cost } = moves.last_check;
  let why = "There is nothing to gain, so all experts stay where they are.";
  if (gain > cost) why = `Moving saves more than it costs${moves.layers_left > 0 ? ", and goes on now" : ""}.`;
  else if (gain > 0) why = "Moving would cost more than it saves, so all experts stay where they are.";
  return { before, after, gain, cost, why };
}
