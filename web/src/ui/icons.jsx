// Strokes on a 24 by 24 grid.
const paths = {
  chat: "M4 5h16v11H9l-5 4z",
  live: "M3 12h4l3-7 4 14 3-7h4",
  experts: "M4 4h6v6H4zM14 4h6v6h-6zM4 14h6v6H4zM14 14h6v6h-6z",
  timeline: "M4 6h9M8 12h12M4 18h7M15 18h5",
  setup: "M4 7h10M18 7h2M4 17h2M10 17h10M16 4.5v5M8 14.5v5",
  plus: "M12 5v14M5 12h14",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M7 7h10v10H7z",
  again: "M20 11a8 8 0 1 0-2.3 6.3M20 5v6h-6",
  edit: "M5 19l1-4L16 5l3 3L9 18zM14 7l3 3",
  copy: "M9 9h11v11H9zM15 9V4H4v11h5",
  check: "M5 12l5 5L20 7",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  left: "M15 5l-7 7 7 7",
  right: "M9 5l7 7-7 7",
  down: "M5 9l7 7 7-7",
  close: "M6 6l12 12M18 6L6 18",
  menu: "M4 7h16M4 12h16M4 17h16",
  sliders: "M4 7h10M18 7h2M4 17h2M10 17h10M16 4.5v5M8 14.5v5",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.4M17.6 17.6L19 19M19 5l-1.4 1.4M6.4 17.6L5 19",
  moon: "M20 14.5A8.5 8.5 0 1 1 9.5 4 7 7 0 0 0 20 14.5z",
  auto: "M12 3a9 9 0 1 0 0 18zM12 3a9 9 0 0 1 0 18",
  help: "M9 9a3 3 0 1 1 4.5 2.6c-1 .6-1.5 1.2-1.5 2.4M12 17.5v.5",
  save: "M12 4v11M7 11l5 5 5-5M5 20h14",
  open: "M12 16V5M7 9l5-5 5 5M5 20h14",
  tokens: "M4 8h5v8H4zM11 8h3v8h-3zM16 8h4v8h-4z",
  key: "M14.5 4a5.5 5.5 0 1 0-4.9 8L4 17.6V20h3v-2h2v-2h2l1.6-1.6A5.5 5.5 0 0 0 14.5 4zM16 8h.01",
  pause: "M8 5v14M16 5v14",
  play: "M7 5l12 7-12 7z",
  record: "M12 7a5 5 0 1 0 0 10 5 5 0 0 0 0-10z",
  out: "M14 4h6v6M20 4l-9 9M18 14v6H4V6h6",
  tool: "M14 6a4 4 0 0 1 5.5 5l-9 9-3.5-3.5 9-9M14 6l4 4",
  more: "M5 12h.01M12 12h.01M19 12h.01",
};

export function Icon({ name, size = 18 }) {
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="1.8" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">
      <path d={paths[name]} />
    </svg>
  );
}
