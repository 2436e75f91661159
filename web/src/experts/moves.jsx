// The card of replicas, and of experts that move while the server works.
import { bytes, duration, exact, percent } from "../lib/format.js";
import { Card, Facts, Notice } from "../ui/parts.jsx";
import { lastCheck, stepsOfMoves } from "./places.js";

const inEachLayer = (replicas) => (replicas > 0 ? `${exact(replicas)} in each layer` : "none");

function Share({ share, tone }) {
  return (
    <span class="bar-row">
      <span class={`bar ${tone}`} style={{ width: `${80 * share}%` }} />
      <span class="number">{percent(share)}</span>
    </span>
  );
}

function LastCheck({ check }) {
  return (
    <div>
      <h3>Last check of the ranks' load</h3>
      <Facts
        rows={[
          ["Ranks even before", <Share share={check.before} tone="tone-amber" />],
          ["Ranks even after", <Share share={check.after} tone="tone-teal" />],
          ["Saved in 5 minutes", duration(1000 * check.gain)],
          ["Cost of moving", duration(1000 * check.cost)],
        ]}
      />
      <p class="why">{check.why}</p>
    </div>
  );
}

function Sums({ moves, replicas }) {
  const loaded = moves.experts > 0 ? `, ${bytes(moves.bytes)} in ${duration(1000 * moves.load_seconds)} of one core` : "";
  const steps = stepsOfMoves(moves);
  return (
    <div>
      <h3>Since the start</h3>
      <Facts
        rows={[
          ["Replicas", inEachLayer(replicas)],
          ["Checks", `${exact(moves.checks)}, after ${exact(moves.rebalances)} of which experts moved`],
          ["Layers changed", moves.layers_left > 0 ? `${exact(moves.layers)}, and ${exact(moves.layers_left)} still to change` : exact(moves.layers)],
          ["Experts loaded", `${exact(moves.experts)}${loaded}`],
          ["A step while they move", steps ? `${duration(steps.moving)}, ${steps.ratio.toFixed(2)} times the ${duration(steps.usual)} before` : "not measured yet"],
        ]}
      />
    </div>
  );
}

// Nothing, where experts have one place each and stay there.
export function Moves({ moves, replicas }) {
  if (moves === null && replicas === 0) return null;
  const check = moves && lastCheck(moves);
  const still = moves
    ? "The ranks have not checked their load yet. They do so after the steps of --eplb-rebalance-num-iterations."
    : "Experts stay where they are; with --enable-eplb they move while the server works.";
  return (
    <Card title="Replicas and moves" note="copies of busy experts, and experts that move between ranks">
      {moves?.failures > 0 && (
        <Notice tone="warn" title={`Rebalances given up: ${exact(moves.failures)} of ${exact(moves.rebalances)}`}>
          {moves.last_error}
        </Notice>
      )}
      {check ? (
        <div class="grid two">
          <LastCheck check={check} />
          <Sums moves={moves} replicas={replicas} />
        </div>
      ) : (
        <p>
          Replicas: {inEachLayer(replicas)}. <span class="muted">{still}</span>
        </p>
      )}
    </Card>
  );
}
