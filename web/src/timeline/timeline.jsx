// Timeline: the last steps, and one of them operation by operation.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { getJson } from "../lib/api.js";
import { exact, micros, percent, quantile } from "../lib/format.js";
import { Icon } from "../ui/icons.jsx";
import { Card, Empty, IconButton, Legend, Notice, PageHead, Problem, Tile } from "../ui/parts.jsx";
import { Lanes } from "./lanes.jsx";
import { openInPerfetto, saveTrace } from "./perfetto.js";
import { hiddenShare, parts, split, wireTone } from "./steps.js";

const PERIOD_MS = 1500;

function Columns({ steps, ops, chosen, onChoose }) {
  const box = useRef(null);
  const most = Math.max(...steps.map((s) => s.took_us));
  // Long ones are rare and would press all others flat.
  const sorted = steps.map((s) => s.took_us).sort((a, b) => a - b);
  const limit = Math.min(most, 3 * quantile(sorted, 0.5));
  const onKey = (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1, Home: -steps.length, End: steps.length }[event.key];
    if (!move) return;
    event.preventDefault();
    const i = steps.findIndex((s) => s.step === chosen);
    const next = Math.min(steps.length - 1, Math.max(0, (i < 0 ? steps.length - 1 : i) + move));
    onChoose(steps[next].step);
  };
  useEffect(() => {
    if (box.current.contains(document.activeElement)) box.current.querySelector(".chosen")?.focus();
  }, [chosen]);
  return (
    <div class="steps" ref={box} role="listbox" aria-label="Steps, oldest first" onKeyDown={onKey}>
      {steps.map((step) => {
        const times = split(step, ops);
        const cut = step.took_us > limit;
        return (
          <button
            type="button"
            key={step.step}
            role="option"
            aria-selected={step.step === chosen}
            tabIndex={step.step === chosen ? 0 : -1}
            class={`step ${step.step === chosen ? "chosen" : ""} ${cut ? "cut" : ""}`}
            aria-label={`Step ${step.step}, ${step.phase}, ${step.rows} rows, ${micros(step.took_us)}`}
            title={`step ${step.step}: ${step.phase}, ${exact(step.rows)} rows, ${micros(step.took_us)}, plan ${step.plan}`}
            onClick={() => onChoose(step.step)}
          >
            <span class="step-stack" style={{ height: `${(100 * Math.min(step.took_us, limit)) / limit}%` }}>
              {parts.map((part, i) => times[i] > 0 && <span key={part.tone} class={part.tone} style={{ flexGrow: times[i] }} />)}
            </span>
            <span class={`step-phase ${step.phase}`} />
          </button>
        );
      })}
    </div>
  );
}

function Account({ step, rank, ops, several }) {
  const times = split(step, ops);
  const rows = parts.map((part, i) => ({ ...part, us: times[i] })).filter((row) => row.us > 0);
  return (
    <table class="data account">
      <caption class="muted">{several ? `Rank ${rank}` : "The step"}: {micros(step.took_us)}</caption>
      <tbody>
        {rows.map((row) => (
          <tr key={row.tone}>
            <td>
              <span class={`swatch ${row.tone}`} /> {row.name}
            </td>
            <td class="bar-cell">
              <span class={`bar ${row.tone}`} style={{ width: `${(100 * row.us) / step.took_us}%` }} />
            </td>
            <td class="number">{micros(row.us)}</td>
            <td class="number">{percent(row.us / step.took_us)}</td>
          </tr>
        ))}
        {several && (
          <tr class="hidden-row">
            <td>
              <span class={`swatch ${wireTone}`} /> hidden transfers
            </td>
            <td class="muted">while it computed{step.hidden_is_bound && ", at most"}</td>
            <td class="number">{micros(step.hidden_us)}</td>
            <td class="number">{percent(hiddenShare([step]))}</td>
          </tr>
        )}
      </tbody>
    </table>
  );
}

// The step of that number; of a server that has gone on since, the one that stands there now.
function sameStep(next, rank, step, place) {
  const steps = (next.ranks.find((r) => r.dp_rank === rank) ?? next.ranks[0])?.steps ?? [];
  if (steps.some((s) => s.step === step)) return step;
  return steps[Math.min(place, steps.length - 1)]?.step ?? null;
}

export function TimelinePage() {
  const [all, setAll] = useState(null);
  const [error, setError] = useState(null);
  const [following, setFollowing] = useState(true);
  const [rank, setRank] = useState(null);
  const [chosen, setChosen] = useState(null);
  const [busy, setBusy] = useState(false);
  const paused = useRef(false);

  const look = async () => {
    try {
      const next = await getJson("/steps");
      if (!paused.current) setAll(next);
      setError(null);
    } catch (failed) {
      setError(failed);
    }
  };
  useEffect(() => {
    look();
    const timer = setInterval(() => document.hidden || paused.current || look(), PERIOD_MS);
    return () => clearInterval(timer);
  }, []);

  const told = all?.ranks.find((r) => r.dp_rank === rank) ?? all?.ranks[0];
  const steps = told?.steps ?? [];
  const newest = steps.at(-1)?.step ?? null;
  // While it follows, the newest step that all ranks have told of.
  const current = following ? (all?.details.at(-1)?.step ?? newest) : steps.some((s) => s.step === chosen) ? chosen : newest;
  const detail = all?.details.find((d) => d.step === current) ?? null;

  // Holding takes all kept steps with their operations at once: a moment later they may be others.
  const choose = async (step) => {
    if (!following) return setChosen(step);
    const place = steps.findIndex((s) => s.step === step);
    paused.current = true;
    try {
      const next = await getJson("/steps/all");
      setAll(next);
      setChosen(sameStep(next, told.dp_rank, step, place));
      setFollowing(false);
    } catch (failed) {
      paused.current = false;
      setError(failed);
    }
    return undefined;
  };
  const follow = () => {
    paused.current = false;
    setFollowing(true);
    look();
  };
  const act = async (what) => {
    setBusy(true);
    try {
      await what();
      setError(null);
    } catch (failed) {
      setError(failed);
    }
    setBusy(false);
  };
  const here = steps.find((s) => s.step === current);
  const several = (all?.ranks.length ?? 0) > 1 || steps.some((s) => s.hidden_us + s.exposed_us + s.waiting_us > 0);
  const median = useMemo(() => quantile(steps.map((s) => s.took_us).sort((a, b) => a - b), 0.5), [steps]);

  return (
    <div class="page">
      <PageHead title="Timeline" about={`The last ${all?.max_steps ?? 64} steps, always kept.`}>
        {(all?.ranks.length ?? 0) > 1 && (
          <select aria-label="Rank" value={told?.dp_rank} onChange={(e) => setRank(Number(e.currentTarget.value))}>
            {all.ranks.map((r) => (
              <option key={r.dp_rank} value={r.dp_rank}>
                rank {r.dp_rank}
              </option>
            ))}
          </select>
        )}
        <IconButton icon={following ? "pause" : "play"} label={following ? "Hold" : "Follow the newest"} pressed={!following} onClick={() => (following ? choose(current) : follow())} />
        <button type="button" disabled={busy || newest === null} onClick={() => act(saveTrace)}>
          <Icon name="save" size={16} /> <span class="wide-only">Download</span>
        </button>
        <button type="button" disabled={busy || newest === null} title="Opens ui.perfetto.dev; the timeline goes from this window to that one" onClick={() => act(openInPerfetto)}>
          <Icon name="out" size={16} /> <span>Open in Perfetto</span>
        </button>
      </PageHead>
      <Problem error={error} />
      {all !== null && steps.length === 0 && <Empty title="No step yet">Ask the model something, and look again.</Empty>}
      {here && (
        <>
          <div class="tiles">
            <Tile label="Median step" value={micros(median)} note={`${steps.length} steps`} />
            {several && (
              <Tile label="Exchange hidden" value={percent(hiddenShare(steps))} note={all.exact_arrival ? "behind computing" : "behind computing, an estimate"} />
            )}
            <Tile label={`Step ${here.step}`} value={micros(here.took_us)} note={`${here.phase}, ${exact(here.rows)} rows`} />
            <Tile label="Plan" value={<span class="plan-name">{here.plan || "none"}</span>} note={here.is_trial ? "a trial" : "as planned"} />
          </div>
          <Card title="Steps" note={following ? "following the newest" : "held; the arrow keys go from step to step"}>
            <Columns steps={steps} ops={all.ops} chosen={current} onChoose={choose} />
            <Legend items={parts.filter((part, i) => steps.some((s) => split(s, all.ops)[i] > 0)).map((part) => ({ name: part.name, tone: part.tone }))} />
          </Card>
          <Card title={`Step ${here.step}`} note={`${exact(here.kv_tokens)} keys read${detail?.ranks[0]?.half_rows[1] > 0 ? `, halves of ${detail.ranks[0].half_rows.join(" and ")} rows` : ""}`}>
            {detail?.ranks.some((r) => r.spans.length > 0) ? <Lanes step={detail} /> : <Notice>Only the sums of this step were kept.</Notice>}
            {several && <Legend items={[{ name: "on the wire", tone: wireTone }, { name: "half b is paler", tone: "op-attention paler" }]} />}
          </Card>
          <Card title="Where the time went">
            <div class="accounts">
              {all.ranks.map((r) => {
                const step = r.steps.find((s) => s.step === here.step);
                return step && <Account key={r.dp_rank} step={step} rank={r.dp_rank} ops={all.ops} several={all.ranks.length > 1} />;
              })}
            </div>
          </Card>
          {all.spans_left_out > 0 && <Notice>{exact(all.spans_left_out)} operations of these steps were too many to keep.</Notice>}
        </>
      )}
    </div>
  );
}
