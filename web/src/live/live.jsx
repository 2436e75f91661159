// Live: what runs, what waits, how full the memory is, and where the time to the first token goes.
import { useEffect, useMemo, useState } from "preact/hooks";
import uPlot from "uplot";
import { postJson } from "../lib/api.js";
import { bytes, count, duration, exact, percent, quantile, rate } from "../lib/format.js";
import { live, lookNow, lookOften } from "../lib/live.js";
import { useStore } from "../lib/store.js";
import { colour } from "../lib/theme.js";
import { Card, Empty, IconButton, Legend, Notice, PageHead, Problem, StackBar, Tile } from "../ui/parts.jsx";
import { Plot, axisStyle } from "../ui/plot.jsx";
import { tiersOf } from "./tiers.js";

const WINDOW_S = 180;
const states = { held: "held back", waiting: "waiting", prompt: "reading the prompt", answer: "answering" };

const secondsAgo = (_, values) => values.map((v) => (v === 0 ? "now" : `${Math.round(v)} s`));
const timeAxis = () => ({ ...axisStyle(), values: secondsAgo, incrs: [10, 15, 30, 60], space: 50, size: 26 });
const countAxis = () => ({ ...axisStyle(), values: (_, values) => values.map((v) => count(v)), size: 44 });
// As far back as is known, a minute at least.
const withTime = { x: { time: false, range: (_, low) => [Math.min(-60, low ?? 0), 0] } };
const fromZero = (_, low, high) => [0, Math.max(1, (high ?? 1) * 1.1)];

function line(name, label, fill) {
  return { label, stroke: colour(name), width: 1.8, fill: fill ? colour(`${name}-soft`) : undefined, points: { show: false }, spanGaps: true };
}

const makeThroughput = () => ({
  scales: { ...withTime, y: { range: fromZero } },
  axes: [timeAxis(), countAxis()],
  series: [{}, line("teal", "answers", true), line("amber", "prompts, computed"), line("blue", "prompts, from the cache")],
});
const makeRequests = () => ({
  scales: { ...withTime, y: { range: fromZero } },
  axes: [timeAxis(), countAxis()],
  series: [{}, { ...line("teal", "running", true), paths: uPlot.paths.stepped({ align: 1 }) }, { ...line("amber", "waiting"), paths: uPlot.paths.stepped({ align: 1 }) }],
});
const makeMemory = () => ({
  scales: { ...withTime, y: { range: [0, 100] } },
  axes: [timeAxis(), { ...axisStyle(), values: (_, values) => values.map((v) => `${v} %`), size: 44 }],
  series: [{}, line("blue", "with the prefix cache", true), line("teal", "of requests", true)],
});

const at = (i, data) => (data[0][i] > -0.5 ? "now" : `${Math.round(-data[0][i])} s ago`);
const showThroughput = (i, data) => `${at(i, data)}: answers ${rate(data[1][i])}, prompts ${rate(data[2][i])}, from the cache ${rate(data[3][i])}`;
const showRequests = (i, data) => `${at(i, data)}: ${exact(data[1][i])} running, ${exact(data[2][i])} waiting`;
const showMemory = (i, data) => `${at(i, data)}: ${data[1][i].toFixed(1)} % in use, ${data[2][i].toFixed(1)} % of requests`;

function useColumns(history) {
  return useMemo(() => {
    const last = history.at(-1)?.t ?? 0;
    const recent = history.filter((p) => last - p.t <= WINDOW_S);
    const t = recent.map((p) => p.t - last);
    const column = (value) => recent.map(value);
    return {
      throughput: [t, column((p) => p.outRate), column((p) => p.inRate), column((p) => p.cachedRate)],
      requests: [t, column((p) => p.running), column((p) => p.waiting)],
      memory: [
        t,
        column((p) => (p.pages > 0 ? (100 * (p.pagesCached + p.pagesPrivate)) / p.pages : 0)),
        column((p) => (p.pages > 0 ? (100 * p.pagesPrivate) / p.pages : 0)),
      ],
    };
  }, [history]);
}

// Means over the last few seconds, so that tiles can be read.
function recently(history) {
  const last = history.at(-1);
  const from = history.find((p) => last && last.t - p.t <= 5);
  if (!last || from === last || last.t <= from.t) return null;
  const s = last.t - from.t;
  const cached = last.cached - from.cached;
  const prompt = last.prompt - from.prompt;
  const hidden = last.hidden - from.hidden;
  const exposed = last.exposed - from.exposed;
  return {
    out: (last.generated - from.generated) / s,
    input: (prompt - cached) / s,
    hitShare: prompt > 0 ? cached / prompt : null,
    hiddenShare: hidden + exposed > 0 ? hidden / (hidden + exposed) : null,
  };
}

const ttftParts = [
  { key: "text_ms", name: "reading", tone: "tone-grey" },
  { key: "queue_ms", name: "waiting", tone: "tone-amber" },
  { key: "prefill_ms", name: "prompt", tone: "tone-teal" },
];

function FirstToken({ ended }) {
  const good = ended.filter((text) => text.ttft_ms !== null && text.queue_ms !== null && text.prefill_ms !== null);
  if (good.length === 0) return <p class="muted">No answer has ended yet.</p>;
  const times = good.map((text) => text.ttft_ms).sort((a, b) => a - b);
  const mean = (key) => good.reduce((all, text) => all + text[key], 0) / good.length;
  const means = ttftParts.map((part) => ({ ...part, ms: mean(part.key) }));
  const rest = Math.max(0, mean("ttft_ms") - means.reduce((all, part) => all + part.ms, 0));
  const all = [...means, { name: "sending", tone: "tone-violet", ms: rest }];
  const whole = all.reduce((sum, part) => sum + part.ms, 0) || 1;
  const shown = all.map((part) => ({ ...part, share: part.ms / whole, text: duration(part.ms) }));
  const newest = good.slice(-24);
  const longest = Math.max(...newest.map((text) => text.ttft_ms));
  return (
    <>
      <div class="figures">
        <span>
          median <b>{duration(quantile(times, 0.5))}</b>
        </span>
        <span>
          95 % below <b>{duration(quantile(times, 0.95))}</b>
        </span>
        <span class="muted">of {good.length} answers</span>
      </div>
      <StackBar label="Mean time to the first token" parts={shown} />
      <Legend items={shown.map((part) => ({ name: part.name, tone: part.tone, text: part.text }))} />
      <div class="ttft-columns" role="img" aria-label={`Time to the first token of the last ${newest.length} answers, the longest ${duration(longest)}`}>
        {newest.map((text) => (
          <span class="ttft-column" key={text.number} title={`${duration(text.ttft_ms)}: ${ttftParts.map((p) => `${p.name} ${duration(text[p.key])}`).join(", ")}`}>
            {ttftParts.map((part) => (
              <span key={part.key} class={part.tone} style={{ height: `${(100 * text[part.key]) / longest}%` }} />
            ))}
          </span>
        ))}
      </div>
    </>
  );
}

function Progress({ request }) {
  const asked = request.state === "answer" ? request.generated_tokens / Math.max(1, request.max_tokens) : request.computed_tokens / Math.max(1, request.prompt_tokens);
  return (
    <div class={`progress state-${request.state}`} title={percent(asked)}>
      <span style={{ width: `${100 * Math.min(1, asked)}%` }} />
    </div>
  );
}

function Requests({ now, severalRanks }) {
  const [failed, setFailed] = useState(null);
  const abort = async (body) => {
    try {
      await postJson("/abort_request", body);
      setFailed(null);
      lookNow();
    } catch (error) {
      setFailed(error);
    }
  };
  const { requests } = now;
  const hidden = now.num_requests - requests.length;
  return (
    <Card
      title="Requests"
      note={`${exact(now.num_requests)} under way`}
      tools={
        requests.length > 1 && (
          <button type="button" class="small" onClick={() => confirm("End all requests that are under way?") && abort({ abort_all: true })}>
            End all
          </button>
        )
      }
    >
      <Problem error={failed} />
      {requests.length === 0 ? (
        <p class="muted">Nothing runs and nothing waits.</p>
      ) : (
        <div class="table-box">
          <table class="data">
            <thead>
              <tr>
                <th>State</th>
                <th class="wide-only">Request</th>
                <th class="number">Age</th>
                <th class="number">Prompt</th>
                <th class="number wide-only">Cached</th>
                <th class="number">Answer</th>
                <th>Progress</th>
                {severalRanks && <th class="number wide-only">Rank</th>}
                <th>
                  <span class="visually-hidden">End it</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {requests.map((request) => (
                <tr key={`${request.id}-${request.index}`}>
                  <td>
                    <span class={`chip state-${request.state}`}>{states[request.state]}</span>
                  </td>
                  <td class="wide-only mono" title={request.id}>
                    {request.id.slice(0, 18)}
                    {request.index > 0 && ` #${request.index}`}
                  </td>
                  <td class="number">{duration(1000 * request.age_seconds)}</td>
                  <td class="number">{count(request.prompt_tokens)}</td>
                  <td class="number wide-only">{count(request.cached_tokens)}</td>
                  <td class="number">
                    {count(request.generated_tokens)}
                    <span class="muted"> / {count(request.max_tokens)}</span>
                  </td>
                  <td>
                    <Progress request={request} />
                  </td>
                  {severalRanks && <td class="number wide-only">{request.dp_rank ?? "–"}</td>}
                  <td>
                    <IconButton icon="close" size={15} label="End this request" onClick={() => abort({ rid: request.id })} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {hidden > 0 && <p class="muted">and {exact(hidden)} more, which came later</p>}
    </Card>
  );
}

function Ranks({ ranks }) {
  return (
    <Card title="Ranks" note="each has a scheduler, a cache and a thread of its own">
      <div class="table-box">
        <table class="data">
          <thead>
            <tr>
              <th class="number">Rank</th>
              <th class="number">Running</th>
              <th class="number">Waiting</th>
              <th>Pages</th>
              <th class="number">Tokens/s</th>
              <th class="number">Last step</th>
              <th class="number" title="Share of the time that rows travelled to it during which it computed">
                Hidden
              </th>
            </tr>
          </thead>
          <tbody>
            {ranks.map((rank) => (
              <tr key={rank.dp_rank}>
                <td class="number">{rank.dp_rank}</td>
                <td class="number">{exact(rank.running)}</td>
                <td class="number">{exact(rank.waiting + rank.held)}</td>
                <td class="bar-cell">
                  <StackBar label={`Pages of rank ${rank.dp_rank}`} parts={pageParts(rank.pages)} />
                </td>
                <td class="number">{rate(rank.gen_throughput)}</td>
                <td class="number">{duration(rank.last_step_ms)}</td>
                <td class="number">{rank.hidden_seconds_total + rank.exposed_seconds_total > 0 ? percent(rank.hidden_share) : "–"}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}

function pageParts(pages) {
  const part = (name, key, tone) => ({ name, tone, share: pages.all > 0 ? pages[key] / pages.all : 0, text: count(pages[key]) });
  return [part("of requests", "private", "tone-teal"), part("prefix cache", "cached", "tone-blue"), part("free", "free", "tone-none")];
}

const allPages = (ranks) => ranks.reduce((all, { pages }) => Object.fromEntries(Object.keys(all).map((key) => [key, all[key] + pages[key]])), { all: 0, free: 0, cached: 0, private: 0 });

const tierNames = { file: "files", redis: "Redis", peer: "peers" };

// Where prompts that were cached, but not in memory, came from since the start.
function Tiers({ tiers }) {
  return (
    <div class="table-box">
      <table class="data">
        <thead>
          <tr>
            <th>Cached in</th>
            <th class="number">Tokens</th>
            <th class="number">Read</th>
            <th class="number" title="Time that computing these tokens would have taken">
              Saved
            </th>
          </tr>
        </thead>
        <tbody>
          {tiers.map((tier) => (
            <tr key={tier.name}>
              <td>
                {tierNames[tier.name] ?? tier.name}
                {tier.unavailable && <span class="muted"> (unavailable)</span>}
              </td>
              <td class="number">{count(tier.tokens)}</td>
              <td class="number">{bytes(tier.bytes)}</td>
              <td class="number">{duration(1000 * tier.saved)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function LivePage() {
  const { now, error, history, ended } = useStore(live);
  useEffect(() => {
    lookOften(true);
    return () => lookOften(false);
  }, []);
  const columns = useColumns(history);
  if (now === null)
    return (
      <div class="page">
        <PageHead title="Live" />
        {error ? <Problem error={error} /> : <Empty title="Asking the server">One moment.</Empty>}
      </div>
    );
  const point = history.at(-1);
  const speed = recently(history);
  const pages = allPages(now.ranks);
  const used = pages.all > 0 ? (pages.private + pages.cached) / pages.all : 0;
  const hits = point.prompt > 0 ? point.cached / point.prompt : null;
  const several = now.ranks.length > 1;
  const tiers = tiersOf(now.ranks);
  return (
    <div class="page">
      <PageHead title="Live" about="The last three minutes, a look a second." />
      {error && <Problem error={error} />}
      {!now.ready && (
        <Notice tone="warn" title="Not ready">
          {now.why_not_ready}
        </Notice>
      )}
      <div class="tiles">
        <Tile label="Running" value={exact(point.running)} note={`${exact(point.waiting)} waiting`} tone={point.waiting > 0 ? "warm" : ""} />
        <Tile label="Answers" value={speed ? rate(speed.out) : "–"} unit="tokens/s" note={`${count(point.generated)} since the start`} />
        <Tile label="Prompts" value={speed ? rate(speed.input) : "–"} unit="tokens/s" note={`${count(point.prompt - point.cached)} computed`} />
        <Tile label="KV memory" value={percent(pages.all > 0 ? pages.private / pages.all : 0)} note={`${percent(used)} with the cache`} />
        <Tile label="Cache hits" value={percent(speed?.hitShare ?? hits)} note={`${percent(hits)} since the start`} />
        {several && <Tile label="Exchange hidden" value={percent(speed?.hiddenShare ?? now.ranks[0].hidden_share)} note="behind computing" />}
      </div>
      <div class="grid two">
        <Card title="Throughput" note="tokens a second">
          <Plot data={columns.throughput} make={makeThroughput} show={showThroughput} label="Tokens a second over the last three minutes" />
          <Legend
            items={[
              { name: "answers", tone: "tone-teal" },
              { name: "prompts, computed", tone: "tone-amber" },
              { name: "prompts, from the cache", tone: "tone-blue" },
            ]}
          />
        </Card>
        <Card title="Requests at once">
          <Plot data={columns.requests} make={makeRequests} show={showRequests} label="Running and waiting requests over the last three minutes" />
          <Legend
            items={[
              { name: "running", tone: "tone-teal", text: exact(point.running) },
              { name: "waiting", tone: "tone-amber", text: exact(point.waiting) },
            ]}
          />
        </Card>
        <Card title="KV memory" note={`${exact(pages.all)} pages`}>
          <Plot data={columns.memory} make={makeMemory} show={showMemory} label="Share of KV pages in use over the last three minutes" />
          <Legend items={pageParts(pages)} />
          {tiers.length > 0 && <Tiers tiers={tiers} />}
        </Card>
        <Card title="Time to the first token" note="where it goes">
          <FirstToken ended={ended} />
        </Card>
      </div>
      <Requests now={now} severalRanks={several} />
      {several && <Ranks ranks={now.ranks} />}
    </div>
  );
}
