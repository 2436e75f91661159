// uPlot in a box that it fills. `make(colours)` gives series and axes; data are columns, the first of them x.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { colour, theme } from "../lib/theme.js";
import { useStore } from "../lib/store.js";

export function axisStyle() {
  const line = { stroke: colour("line"), width: 1 };
  return { stroke: colour("muted"), grid: line, ticks: { ...line, size: 4 }, font: "11px system-ui, sans-serif", size: 34, gap: 4 };
}

// `show` says what lies under the pointer: a sentence, from the index of a column and the data.
export function Plot({ data, make, show, height = 170, label }) {
  const box = useRef(null);
  const plot = useRef(null);
  const words = useRef(null);
  const shade = useStore(theme);
  useEffect(() => {
    const width = box.current.clientWidth || 300;
    const point = (u) => (words.current.textContent = u.cursor.idx == null ? "" : show(u.cursor.idx, u.data));
    plot.current = new uPlot(
      { width, height, legend: { show: false }, cursor: { y: false, drag: { x: false, y: false } }, hooks: { setCursor: [point] }, ...make() },
      data,
      box.current,
    );
    const watch = new ResizeObserver(([entry]) => plot.current?.setSize({ width: entry.contentRect.width, height }));
    watch.observe(box.current);
    return () => {
      watch.disconnect();
      plot.current.destroy();
      plot.current = null;
    };
  }, [shade, make, height]);
  useEffect(() => {
    plot.current?.setData(data);
  }, [data]);
  return (
    <div class="plot-box">
      <div class="plot" ref={box} role="img" aria-label={label} style={{ height: `${height}px` }} />
      <div class="plot-words" ref={words} aria-hidden="true" />
    </div>
  );
}
