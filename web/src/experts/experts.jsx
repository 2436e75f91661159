// Experts: which are chosen, layer by layer, and how even the load is.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { getJson, postJson } from "../lib/api.js";
import { count, exact, percent } from "../lib/format.js";
import { useStore } from "../lib/store.js";
import { colour, isDark, theme } from "../lib/theme.js";
import { Icon } from "../ui/icons.jsx";
import { Card, Empty, PageHead, Problem, Tile } from "../ui/parts.jsx";
import { Moves } from "./moves.jsx";
import { oneRankEach, ranksOf } from "./places.js";

const PERIOD_MS = 1500;

// From no load over the mean to three times the mean, faint to strong.
function shade(times, dark) {
  const t = Math.min(1, times / 3);
  const stops = dark
    ? [
        [24, 31, 30],
        [32, 88, 84],
        [99, 199, 178],
        [247, 205, 128],
        [255, 140, 90],
      ]
    : [
        [244, 243, 238],
        [176, 218, 208],
        [38, 140, 128],
        [196, 124, 22],
        [176, 58, 28],
      ];
  const at = t * (stops.length - 1);
  const i = Math.min(stops.length - 2, Math.floor(at));
  const mix = (k) => Math.round(stops[i][k] + (stops[i + 1][k] - stops[i][k]) * (at - i));
  return `rgb(${mix(0)} ${mix(1)} ${mix(2)})`;
}

// Layers that have experts, with their loads.
function layersOf(record) {
  return record.logical_count
    .map((counts, layer) => ({ layer, counts, all: counts.reduce((a, b) => a + b, 0) }))
    .filter((row) => row.all > 0)
    .map((row) => ({ ...row, mean: row.all / row.counts.length, most: Math.max(...row.counts) }));
}

function HeatMap({ rows, expertRank, chosen, onChoose }) {
  const box = useRef(null);
  const canvas = useRef(null);
  const [width, setWidth] = useState(600);
  useStore(theme);
  const columns = rows[0].counts.length;
  const left = 34;
  const cell = Math.max(2, (width - left) / columns);
  const height = Math.max(7, Math.min(30, 560 / rows.length));
  const top = 18;
  useLayoutEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(entry.contentRect.width));
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  useLayoutEffect(() => {
    const scale = devicePixelRatio || 1;
    const c = canvas.current;
    const whole = top + rows.length * height;
    c.width = width * scale;
    c.height = whole * scale;
    const draw = c.getContext("2d");
    draw.scale(scale, scale);
    draw.clearRect(0, 0, width, whole);
    draw.font = "11px system-ui, sans-serif";
    draw.fillStyle = colour("muted");
    draw.textBaseline = "middle";
    const dark = isDark();
    const every = Math.ceil(14 / height);
    rows.forEach((row, y) => {
      draw.fillStyle = colour("muted");
      if (y % every === 0) draw.fillText(`${row.layer}`, 4, top + (y + 0.5) * height);
      row.counts.forEach((n, x) => {
        draw.fillStyle = shade(n / row.mean, dark);
        const gap = cell > 6 ? 1 : 0;
        draw.fillRect(left + x * cell, top + y * height, Math.max(1, cell - gap), height - (height > 8 ? 1 : 0));
      });
    });
    // Where experts of one rank end and those of the next begin.
    draw.fillStyle = colour("ink");
    let begin = 0;
    for (let x = 1; expertRank && x <= columns; ++x) {
      if (x < columns && expertRank[x] === expertRank[x - 1]) continue;
      if (Math.max(...expertRank) > 0 && (x - begin) * cell > 34) {
        draw.fillStyle = colour("muted");
        draw.fillText(`rank ${expertRank[begin]}`, left + begin * cell + 2, 8);
        if (x < columns) draw.fillRect(left + x * cell - 1, 2, 1, whole);
      }
      begin = x;
    }
    if (chosen) {
      const y = rows.findIndex((row) => row.layer === chosen.layer);
      draw.strokeStyle = colour("ink");
      draw.lineWidth = 2;
      draw.strokeRect(left + chosen.expert * cell, top + y * height, Math.max(2, cell - 1), height - 1);
    }
  });
  const at = (event) => {
    const place = canvas.current.getBoundingClientRect();
    const x = Math.floor((event.clientX - place.left - left) / cell);
    const y = Math.floor((event.clientY - place.top - top) / height);
    return x >= 0 && x < columns && rows[y] ? { layer: rows[y].layer, expert: x } : null;
  };
  const onKey = (event) => {
    const move = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!move) return;
    event.preventDefault();
    const y = chosen ? rows.findIndex((row) => row.layer === chosen.layer) : 0;
    const x = chosen ? chosen.expert : 0;
    const row = rows[Math.min(rows.length - 1, Math.max(0, y + (chosen ? move[1] : 0)))];
    onChoose({ layer: row.layer, expert: Math.min(columns - 1, Math.max(0, x + (chosen ? move[0] : 0))) });
  };
  return (
    <div
      ref={box}
      class="heat"
      tabIndex={0}
      role="application"
      aria-label={`Heat map of ${rows.length} layers by ${columns} experts; arrow keys choose one`}
      onKeyDown={onKey}
      onMouseMove={(event) => onChoose(at(event))}
      onMouseLeave={() => onChoose(null)}
    >
      <canvas ref={canvas} style={{ width: `${width}px`, height: `${top + rows.length * height}px` }} />
    </div>
  );
}

function Scale() {
  useStore(theme);
  const dark = isDark();
  return (
    <div class="scale" role="img" aria-label="Colours: from no load over the mean to three times the mean">
      <span>none</span>
      <span class="scale-bar">
        {Array.from({ length: 25 }, (_, i) => (
          <i key={i} style={{ background: shade((3 * i) / 24, dark) }} />
        ))}
      </span>
      <span>3 × mean</span>
    </div>
  );
}

function Imbalance({ rows, record }) {
  const worst = Math.max(1.5, ...rows.map((row) => row.most / row.mean));
  return (
    <div class="table-box">
      <table class="data">
        <thead>
          <tr>
            <th class="number">Layer</th>
            <th>Busiest expert, times the mean</th>
            <th class="number">Expert</th>
            <th class="number" title="Mean over largest load of ranks; 1 is even">
              Ranks even
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.layer}>
              <td class="number">{row.layer}</td>
              <td class="bar-cell">
                <span class="bar-row">
                  <span class={`bar ${row.most / row.mean > 2 ? "tone-amber" : "tone-teal"}`} style={{ width: `${(80 * row.most) / row.mean / worst}%` }} />
                  <span class="number">{(row.most / row.mean).toFixed(2)}</span>
                </span>
              </td>
              <td class="number">{row.counts.indexOf(row.most)}</td>
              <td class="number">{percent(record.layer_balancedness.ranks[row.layer])}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function ExpertsPage() {
  const [state, setState] = useState({ look: null, error: null });
  const [chosen, setChosen] = useState(null);
  const look = async () => {
    try {
      setState({ look: await getJson("/expert_distribution"), error: null });
    } catch (error) {
      setState((old) => ({ ...old, error }));
    }
  };
  useEffect(() => {
    look();
    const timer = setInterval(() => document.hidden || look(), PERIOD_MS);
    return () => clearInterval(timer);
  }, []);
  const tell = async (path) => {
    try {
      await postJson(path, {});
      await look();
    } catch (error) {
      setState((old) => ({ ...old, error }));
    }
  };
  const record = state.look?.record ?? null;
  const recording = state.look?.recording ?? false;
  const rows = useMemo(() => (record ? layersOf(record) : []), [record]);
  const dense = state.error?.message?.includes("no experts");
  const row = chosen && rows.find((r) => r.layer === chosen.layer);
  const ranks = row ? ranksOf(record, row.layer, chosen.expert) : [];
  const worst = rows.reduce((a, r) => (a === null || r.most / r.mean > a.most / a.mean ? r : a), null);
  return (
    <div class="page">
      <PageHead title="Experts" about="Which experts the rows that this process computed have chosen.">
        {!dense && (
          <>
            {recording ? (
              <button type="button" onClick={() => tell("/stop_expert_distribution_record")}>
                <Icon name="stop" size={16} /> Stop
              </button>
            ) : (
              <button type="button" class="primary" onClick={() => tell("/start_expert_distribution_record")}>
                <Icon name="record" size={16} /> Record
              </button>
            )}
            {recording && (
              <button type="button" class="quiet" onClick={() => tell("/start_expert_distribution_record")}>
                Begin anew
              </button>
            )}
          </>
        )}
      </PageHead>
      {dense ? <Empty title="This model has no experts">Every row goes through the same weights.</Empty> : <Problem error={state.error} />}
      {!dense && !state.error && state.look && record === null && (
        <Empty title="Nothing is recorded">
          <p>Recording changes no bit of an answer and costs a few additions a row.</p>
        </Empty>
      )}
      {record && rows.length === 0 && <Empty title="No rows yet">{recording ? "The next request will show." : "Nothing was computed while this was recorded."}</Empty>}
      {rows.length > 0 && (
        <>
          <div class="tiles">
            <Tile label="Rows" value={count(record.num_tokens)} note={`${exact(record.num_steps)} steps${recording ? ", recording" : ""}`} tone={recording ? "warm" : ""} />
            <Tile label="Experts" value={exact(rows[0].counts.length)} note={`${rows.length} layers with experts`} />
            <Tile label="Ranks even" value={percent(record.average_utilization_rate_over_window)} note="mean / largest load" />
            <Tile label="Most uneven layer" value={worst.layer} note={`expert ${worst.counts.indexOf(worst.most)}: ${(worst.most / worst.mean).toFixed(2)} × mean`} />
          </div>
          <Card title="Load of each expert" note="a row a layer, a column an expert" tools={<Scale />}>
            <HeatMap rows={rows} expertRank={oneRankEach(record, rows.map((r) => r.layer))} chosen={chosen} onChoose={setChosen} />
            <p class="heat-note" role="status">
              {row ? (
                <>
                  Layer <b>{row.layer}</b>, expert <b>{chosen.expert}</b> on {ranks.length > 1 ? "ranks" : "rank"} {ranks.join(", ")}: {exact(row.counts[chosen.expert])} rows,{" "}
                  <b>{(row.counts[chosen.expert] / row.mean).toFixed(2)} × mean</b>, {percent(row.counts[chosen.expert] / row.all, 1)} of the layer
                </>
              ) : (
                <span class="muted">Point at an expert, or choose one with the arrow keys.</span>
              )}
            </p>
          </Card>
          <Card title="Evenness">
            <Imbalance rows={rows} record={record} />
          </Card>
        </>
      )}
      {!dense && state.look && <Moves moves={state.look.moves} replicas={state.look.replicas} />}
    </div>
  );
}
