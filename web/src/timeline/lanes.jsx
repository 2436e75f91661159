// One step, drawn: compute, waits and wires of each rank over the same clock. The wheel, pinching and + and - zoom, dragging and the
// arrow keys move, 0 shows all.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { bytes, micros } from "../lib/format.js";
import { useStore } from "../lib/store.js";
import { colour, theme } from "../lib/theme.js";
import { lanesOf, rangeOf, toneOf } from "./steps.js";

const LEFT = 112;
const TOP = 20;
const LANE = 22;
const GAP = 10; // between ranks

function ticks(from, to, width) {
  const wanted = Math.max(2, width / 90);
  const raw = (to - from) / wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= raw);
  const out = [];
  for (let t = Math.ceil(from / step) * step; t <= to; t += step) out.push(t);
  return out;
}

function place(lanes) {
  let y = TOP;
  return lanes.map((lane, i) => {
    if (i > 0 && lanes[i - 1].rank !== lane.rank) y += GAP;
    const at = y;
    y += LANE;
    return at;
  });
}

export function describe(span) {
  const where = span.layer >= 0 ? `, layer ${span.layer}` : "";
  const half = span.layer < 0 ? "" : `, half ${span.half === 0 ? "a" : "b"}`;
  const size = span.bytes > 0 ? `, ${bytes(span.bytes)}` : "";
  const what = { exposed: `waited for ${span.what} under way`, waiting: `waited for ranks: ${span.what}`, wire: `${span.what} on the wire` }[span.kind] ?? span.what;
  return `${what}${where}${half}${size}: ${micros(span.to - span.from)}`;
}

function draw(canvas, { lanes, ys, width, height, view, hovered }) {
  const scale = devicePixelRatio || 1;
  canvas.width = width * scale;
  canvas.height = height * scale;
  const c = canvas.getContext("2d");
  c.scale(scale, scale);
  c.clearRect(0, 0, width, height);
  const [from, to] = view;
  const x = (t) => LEFT + ((t - from) / (to - from)) * (width - LEFT);
  c.font = "11px system-ui, sans-serif";
  c.textBaseline = "middle";
  const muted = colour("muted");
  const line = colour("line");
  for (const t of ticks(from, to, width - LEFT)) {
    c.fillStyle = line;
    c.fillRect(x(t), TOP - 4, 1, height - TOP);
    c.fillStyle = muted;
    c.fillText(micros(t), x(t) + 3, 8);
  }
  const colours = new Map();
  const tone = (name) => {
    if (!colours.has(name)) colours.set(name, colour(name));
    return colours.get(name);
  };
  lanes.forEach((lane, i) => {
    const y = ys[i];
    c.fillStyle = tone("lane");
    c.fillRect(LEFT, y, width - LEFT, LANE - 3);
    c.save();
    c.beginPath();
    c.rect(LEFT, y, width - LEFT, LANE - 3);
    c.clip();
    for (const span of lane.spans) {
      if (span.to < from || span.from > to) continue;
      const begin = x(span.from);
      const wide = Math.max(0.6, x(span.to) - begin);
      c.globalAlpha = span.half === 1 && span.kind !== "other" ? 0.62 : 1;
      c.fillStyle = tone(toneOf(span.kind, span.what));
      c.fillRect(begin, y, wide > 3 ? wide - 0.7 : wide, LANE - 3);
      c.globalAlpha = 1;
      if (wide > 40 && span.kind !== "other") {
        c.save();
        c.beginPath();
        c.rect(begin, y, wide - 3, LANE);
        c.clip();
        c.fillStyle = tone("on-op");
        c.fillText(span.what, begin + 4, y + (LANE - 3) / 2 + 0.5);
        c.restore();
      }
      if (hovered === span) {
        c.strokeStyle = tone("ink");
        c.lineWidth = 2;
        c.strokeRect(begin + 1, y + 1, Math.max(2, wide - 2), LANE - 5);
      }
    }
    c.restore();
    c.fillStyle = i === 0 || lanes[i - 1].rank !== lane.rank ? tone("ink") : muted;
    c.fillText(i === 0 || lanes[i - 1].rank !== lane.rank ? `rank ${lane.rank}` : "", 0, y + LANE / 2 - 1);
    c.fillStyle = muted;
    c.fillText(lane.name, 50, y + LANE / 2 - 1);
  });
}

export function Lanes({ step }) {
  const box = useRef(null);
  const canvas = useRef(null);
  const [width, setWidth] = useState(700);
  const [view, setView] = useState(rangeOf(step));
  const [hovered, setHovered] = useState(null);
  const shade = useStore(theme);
  const whole = rangeOf(step);
  const lanes = lanesOf(step);
  const ys = place(lanes);
  const height = (ys.at(-1) ?? TOP) + LANE + 4;
  const state = useRef(null);
  state.current = { view, whole, width, lanes, ys };

  useEffect(() => {
    setView(rangeOf(step));
    setHovered(null);
  }, [step]);
  useLayoutEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(entry.contentRect.width));
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  useLayoutEffect(() => draw(canvas.current, { lanes, ys, width, height, view, hovered }), [step, width, view, hovered, shade]);

  const clamp = ([from, to]) => {
    const [low, high] = state.current.whole;
    const size = Math.min(high - low, Math.max((high - low) / 5000, to - from));
    const begin = Math.min(high - size, Math.max(low, from));
    return [begin, begin + size];
  };
  const zoom = (factor, middle) =>
    setView(([from, to]) => {
      const at = middle ?? (from + to) / 2;
      return clamp([at - (at - from) * factor, at + (to - at) * factor]);
    });
  const move = (share) => setView(([from, to]) => clamp([from + share * (to - from), to + share * (to - from)]));
  const timeAt = (event) => {
    const { view: v, width: w } = state.current;
    const x = event.clientX - canvas.current.getBoundingClientRect().left;
    return v[0] + ((x - LEFT) / (w - LEFT)) * (v[1] - v[0]);
  };
  const spanAt = (event) => {
    const y = event.clientY - canvas.current.getBoundingClientRect().top;
    const i = state.current.ys.findIndex((top) => y >= top && y < top + LANE);
    const t = timeAt(event);
    const slack = ((state.current.view[1] - state.current.view[0]) / state.current.width) * 2;
    const found = (state.current.lanes[i]?.spans ?? []).filter((span) => t >= span.from - slack && t <= span.to + slack);
    return found.reduce((a, b) => (a === null || b.to - b.from < a.to - a.from ? b : a), null);
  };
  // Not passive: the page is not to scroll while the step is zoomed.
  useEffect(() => {
    const onWheel = (event) => {
      if (!event.ctrlKey && !event.shiftKey && Math.abs(event.deltaY) > Math.abs(event.deltaX) && document.activeElement !== box.current) return;
      event.preventDefault();
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) move(event.deltaX / 800);
      else zoom(Math.exp(event.deltaY / 400), timeAt(event));
    };
    box.current.addEventListener("wheel", onWheel, { passive: false });
    return () => box.current?.removeEventListener("wheel", onWheel);
  }, []);
  const drag = useRef(null);
  const onKey = (event) => {
    const acts = { "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1.6), 0: () => setView(whole), ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2) };
    if (!acts[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    acts[event.key]();
  };
  return (
    <>
      <div
        ref={box}
        class="lanes"
        tabIndex={0}
        role="application"
        aria-label="Lanes of the step; plus and minus zoom, arrow keys move, 0 shows all"
        onKeyDown={onKey}
        onPointerDown={(event) => {
          box.current.focus();
          drag.current = { x: event.clientX, view };
          box.current.setPointerCapture(event.pointerId);
        }}
        onPointerMove={(event) => {
          if (drag.current === null) setHovered(spanAt(event));
          else {
            const shift = ((drag.current.x - event.clientX) / (width - LEFT)) * (drag.current.view[1] - drag.current.view[0]);
            setView(clamp([drag.current.view[0] + shift, drag.current.view[1] + shift]));
          }
        }}
        onPointerUp={() => (drag.current = null)}
        onPointerCancel={() => (drag.current = null)}
        onPointerLeave={() => setHovered(null)}
        onDblClick={() => setView(whole)}
      >
        <canvas ref={canvas} style={{ width: `${width}px`, height: `${height}px` }} />
      </div>
      <p class="heat-note" role="status">
        {hovered ? describe(hovered) : <span class="muted">Point at a span. After a click: the wheel zooms, dragging moves, a double click shows all.</span>}
      </p>
    </>
  );
}
