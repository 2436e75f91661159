// Setup: what is served, on what, with which settings, and what the server changed by itself.
import { useEffect, useState } from "preact/hooks";
import { getJson } from "../lib/api.js";
import { bytes, exact, percent, micros, duration } from "../lib/format.js";
import { Card, CopyButton, Empty, Facts, Legend, Notice, PageHead, Problem, StackBar } from "../ui/parts.jsx";

// "0-3, 8".
function ranges(numbers) {
  const out = [];
  for (let i = 0; i < numbers.length; ) {
    let end = i + 1;
    while (end < numbers.length && numbers[end] === numbers[end - 1] + 1) ++end;
    out.push(end - i > 1 ? `${numbers[i]}–${numbers[end - 1]}` : `${numbers[i]}`);
    i = end;
  }
  return out.join(", ");
}

function Changes({ changes }) {
  if (changes.length === 0) return <p class="muted">The server changed no setting.</p>;
  return (
    <ul class="changes">
      {changes.map((c) => (
        <li key={c.flag}>
          <code>{c.flag}</code>
          <span class="change">
            <s>{c.from || "not given"}</s> → <b>{c.to}</b>
          </span>
          <span class="muted">{c.why}</span>
        </li>
      ))}
    </ul>
  );
}

const show = (value) => (value === null || value === "" ? "–" : typeof value === "object" ? JSON.stringify(value) : String(value));

function Settings({ settings }) {
  const [search, setSearch] = useState("");
  const wanted = search.toLowerCase().replace(/^--/, "").replace(/-/g, "_");
  const rows = Object.entries(settings).filter(([name, value]) => name.includes(wanted) || show(value).toLowerCase().includes(search.toLowerCase()));
  return (
    <>
      <input type="search" class="search" placeholder="Search the settings" aria-label="Search the settings" value={search} onInput={(e) => setSearch(e.currentTarget.value)} />
      <div class="settings-grid">
        {rows.map(([name, value]) => (
          <div class="setting" key={name}>
            <code>--{name.replace(/_/g, "-")}</code>
            <span class={value === false || value === 0 || value === "" || value === null ? "muted" : ""}>{show(value)}</span>
          </div>
        ))}
        {rows.length === 0 && <p class="muted">No setting matches.</p>}
      </div>
    </>
  );
}

function Memory({ memory }) {
  const parts = [
    { name: "weights", tone: "tone-violet", n: memory.weight_bytes },
    { name: "KV pages", tone: "tone-teal", n: memory.kv_bytes },
    { name: "states", tone: "tone-blue", n: memory.state_bytes },
    { name: "work buffers", tone: "tone-amber", n: memory.work_bytes },
    { name: "prefix indexes", tone: "tone-grey", n: memory.index_bytes },
  ].filter((part) => part.n > 0);
  const all = parts.reduce((sum, part) => sum + part.n, 0) || 1;
  const shown = parts.map((part) => ({ ...part, share: part.n / all, text: bytes(part.n) }));
  return (
    <>
      <StackBar label="Memory planned at the start" parts={shown} />
      <Legend items={shown} />
    </>
  );
}

function Ranks({ ranks }) {
  return (
    <div class="table-box">
      <table class="data">
        <thead>
          <tr>
            <th class="number">Rank</th>
            <th>Cores</th>
            <th>Experts</th>
            <th class="number">Weights</th>
            <th class="number">KV tokens</th>
            <th class="number">Places</th>
          </tr>
        </thead>
        <tbody>
          {ranks.map((rank) => (
            <tr key={rank.dp_rank}>
              <td class="number">{rank.dp_rank}</td>
              <td>{rank.cpus.length > 0 ? ranges(rank.cpus) : "any"}</td>
              <td>{rank.experts.length > 0 ? ranges(rank.experts) : "all"}</td>
              <td class="number">{bytes(rank.weight_bytes)}</td>
              <td class="number">{exact(rank.max_total_num_tokens)}</td>
              <td class="number">{exact(rank.max_running_requests)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Overlap({ overlap }) {
  const { planner, ranks } = overlap;
  return (
    <>
      <Facts
        rows={[
          ["Choice", overlap.overlap],
          ["Hidden", ranks.some((r) => r.seconds.hidden + r.seconds.exposed > 0) ? `${percent(overlap.hidden_share)}${ranks.some((r) => r.hidden_is_estimate) ? ", an estimate" : ""}` : "nothing was sent yet"],
          ["Prompts now", ranks[0]?.plan.prefill || "–"],
          ["Answers now", ranks[0]?.plan.decode || "–"],
        ]}
      />
      {planner === null ? (
        <p class="muted">Plans are made by rank 0, which is another process.</p>
      ) : (
        <div class="decisions">
          {planner.decisions.slice(0, 24).map((d) => (
            <details key={`${d.phase}-${d.rows}-${d.kv_tokens}`}>
              <summary>
                <b>{d.plan.name}</b> {d.phase}, {exact(d.rows)} rows
                <span class="muted">
                  {" "}
                  {micros(d.measured_us || d.predicted_us)} · {exact(d.steps)} steps
                </span>
              </summary>
              <p>{d.text}</p>
            </details>
          ))}
        </div>
      )}
    </>
  );
}

const DRAFTERS = {
  NEXTN: "the model's own layer (NEXTN)",
  NGRAM: "text that repeats (NGRAM)",
  auto: "the model's own layer (NEXTN) and text that repeats (NGRAM)",
};
const counted = (n, word) => `${exact(n)} ${word}${n === 1 ? "" : "s"}`;

function Speculation({ speculation }) {
  const { ranks } = speculation;
  const sum = (name) => ranks.reduce((all, rank) => all + rank[name], 0);
  const gained = speculation.gained_seconds;
  return (
    <>
      <Facts
        rows={[
          ["Drafts from", DRAFTERS[speculation.algorithm] ?? speculation.algorithm],
          ["Accepted", sum("drafts") > 0 ? `${exact(sum("accepted"))} of ${exact(sum("drafts"))} drafts, ${percent(sum("accepted") / sum("drafts"))}` : "no draft was verified yet"],
          ["Steps with drafts", `${exact(sum("draft_steps"))} of ${exact(sum("steps"))}, ${exact(sum("trial_steps"))} on trial`],
          ["Tokens a step", sum("drafts") > 0 ? `${ranks.map((rank) => rank.accept_length.toFixed(2)).join(", ")} of an answer with drafts` : "1"],
          gained === null
            ? ["Time gained", "unknown: no step without drafts was seen"]
            : [gained < 0 ? "Time lost" : "Time gained", duration(1000 * Math.abs(gained))],
        ]}
      />
      <div class="decisions">
        {ranks.flatMap((rank) =>
          rank.sizes.slice(0, 24).map((size) => (
            <details key={`${rank.dp_rank}-${size.answers}-${size.keys_per_answer}`}>
              <summary>
                <b>{size.usual.drafts === 0 ? "no drafts" : counted(size.usual.drafts, "draft")}</b> {counted(size.answers, "answer")} of up to {exact(size.keys_per_answer)} tokens
                <span class="muted">
                  {" "}
                  {ranks.length > 1 ? `rank ${rank.dp_rank} · ` : ""}
                  {exact(size.steps)} steps
                </span>
              </summary>
              <p>{size.text}</p>
            </details>
          )),
        )}
      </div>
    </>
  );
}

export function SetupPage() {
  const [state, setState] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    Promise.all([getJson("/get_server_info"), getJson("/get_model_info"), getJson("/overlap"), getJson("/speculation")]).then(
      ([server, model, overlap, speculation]) => setState({ server, model, overlap, speculation }),
      setError,
    );
  }, []);
  if (state === null)
    return (
      <div class="page">
        <PageHead title="Setup" />
        {error ? <Problem error={error} /> : <Empty title="Asking the server">One moment.</Empty>}
      </div>
    );
  const { server, model, overlap, speculation } = state;
  const { machine } = server;
  return (
    <div class="page">
      <PageHead title="Setup" about={`hocket ${server.version}, as it runs.`}>
        <CopyButton label="Copy all of it, for a report" text={() => JSON.stringify(state, null, 1)} />
      </PageHead>
      <div class="grid two">
        <Card title="Model">
          <Facts
            rows={[
              ["Served as", model.served_model_name],
              ["Architecture", model.architecture],
              ["Layers", exact(model.num_layers)],
              ["Experts", model.num_experts > 0 ? exact(model.num_experts) : "none, a dense model"],
              ["Vocabulary", exact(model.vocab_size)],
              ["Context", `${exact(server.context_length)} tokens`],
              ["Weights", server.weight_format],
              ["Keys and values", server.kv_cache_dtype],
              ["Form", server.form],
              ["Chat template", model.has_chat_template ? "yes" : "none"],
              ["Loaded in", duration(1000 * server.load_seconds)],
              ["From", <code class="path">{model.model_path}</code>],
            ]}
          />
        </Card>
        <Card title="Machine">
          {machine && (
            <Facts
              rows={[
                ["Processor", machine.cpu_name],
                ["Kernels", server.isa],
                ["Cores", `${exact(machine.num_cores)} (${ranges([...machine.cpus].sort((a, b) => a - b))})`],
                ["Threads", exact(server.num_threads)],
                ["NUMA nodes", exact(machine.num_numa_nodes)],
                ["Memory", `${bytes(machine.memory_bytes)}, ${bytes(machine.memory_available_bytes)} free at the start`],
                ["Huge pages", machine.huge_pages],
              ]}
            />
          )}
          {machine && (
            <details>
              <summary>Instructions</summary>
              <p class="features">
                {machine.features.map((name) => (
                  <code key={name}>{name}</code>
                ))}
              </p>
            </details>
          )}
        </Card>
        <Card title="Changed by the server" note="what was asked for, what it is, and why">
          <Changes changes={server.changes} />
        </Card>
        <Card title="Memory">
          <Memory memory={server.memory} />
          <Facts
            rows={[
              ["KV tokens", exact(server.max_total_num_tokens)],
              ["Pages", `${exact(server.num_pages)} of ${server.page_size} tokens`],
              ["Places in the batch", exact(server.max_running_requests)],
            ]}
          />
        </Card>
      </div>
      {server.num_ranks > 1 && (
        <Card title="Ranks" note={server.network}>
          {server.peers?.some((peer) => !peer.there) && (
            <Notice tone="warn" title="Ranks are missing">
              {server.peers
                .filter((peer) => !peer.there)
                .map((peer) => `rank ${peer.rank} (${peer.host})`)
                .join(", ")}
            </Notice>
          )}
          <Ranks ranks={server.ranks} />
        </Card>
      )}
      {server.num_ranks > 1 && (
        <Card title="Overlap" note="what is played, and why">
          <Overlap overlap={overlap} />
        </Card>
      )}
      {speculation.ranks.length > 0 && (
        <Card title="Speculation" note="drafts, and why there are so many">
          <Speculation speculation={speculation} />
        </Card>
      )}
      <Card title="Settings" note="as given, or the default">
        <Settings settings={server.settings} />
      </Card>
    </div>
  );
}
