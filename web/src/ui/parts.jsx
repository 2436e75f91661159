// The small parts that pages are made of.
import { useEffect, useRef, useState } from "preact/hooks";
import { Icon } from "./icons.jsx";

export function IconButton({ icon, label, onClick, pressed, disabled, size, class: extra = "", ...rest }) {
  return (
    <button type="button" class={`icon-button ${extra}`} aria-label={label} title={label} aria-pressed={pressed} onClick={onClick} disabled={disabled} {...rest}>
      <Icon name={icon} size={size} />
    </button>
  );
}

export function PageHead({ title, about, children }) {
  return (
    <header class="page-head">
      <div>
        <h1>{title}</h1>
        {about && <p class="muted">{about}</p>}
      </div>
      <div class="page-tools">{children}</div>
    </header>
  );
}

export function Card({ title, note, tools, children, class: extra = "" }) {
  return (
    <section class={`card ${extra}`} aria-label={title}>
      {(title || tools) && (
        <div class="card-head">
          <h2>{title}</h2>
          {note && <span class="muted note">{note}</span>}
          {tools && <div class="card-tools">{tools}</div>}
        </div>
      )}
      {children}
    </section>
  );
}

export function Tile({ label, value, unit, note, tone }) {
  return (
    <div class={`tile ${tone ?? ""}`}>
      <div class="tile-label">{label}</div>
      <div class="tile-value">
        {value}
        {unit && <span class="unit">{unit}</span>}
      </div>
      <div class="tile-note">{note ?? "\u00a0"}</div>
    </div>
  );
}

// Names and values; those without a value are left out.
export function Facts({ rows }) {
  return (
    <dl class="facts-list">
      {rows
        .filter(([, value]) => value !== null && value !== undefined && value !== "")
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}

// Parts of a whole, as one bar; each {share, name, tone, text}.
export function StackBar({ parts, label }) {
  return (
    <div class="stack" role="img" aria-label={`${label}: ${parts.map((p) => `${p.name} ${p.text}`).join(", ")}`}>
      {parts.map((p) => (
        <span key={p.name} class={`stack-part ${p.tone}`} style={{ width: `${100 * Math.max(0, p.share)}%` }} title={`${p.name}: ${p.text}`} />
      ))}
    </div>
  );
}

export function Legend({ items }) {
  return (
    <ul class="legend">
      {items.map((item) => (
        <li key={item.name}>
          <span class={`swatch ${item.tone ?? ""}`} style={item.colour ? { background: item.colour } : undefined} />
          {item.name}
          {item.text != null && <b>{item.text}</b>}
        </li>
      ))}
    </ul>
  );
}

export function Notice({ tone = "info", title, children }) {
  return (
    <div class={`notice ${tone}`} role={tone === "bad" ? "alert" : "status"}>
      {title && <strong>{title}</strong>}
      <div>{children}</div>
    </div>
  );
}

export function Problem({ error }) {
  if (!error) return null;
  return (
    <Notice tone="bad" title={error.message}>
      {error.hint}
    </Notice>
  );
}

export function Empty({ title, children }) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      <div class="muted">{children}</div>
    </div>
  );
}

// A native dialog: the browser keeps the focus inside and Escape closes it.
export function Dialog({ title, onClose, children, wide }) {
  const ref = useRef(null);
  useEffect(() => {
    const dialog = ref.current;
    dialog.showModal();
    return () => dialog.close();
  }, []);
  return (
    <dialog
      ref={ref}
      class={wide ? "wide" : ""}
      aria-label={title}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => event.target === ref.current && onClose()}
    >
      <div class="dialog-body">
        <div class="dialog-head">
          <h2>{title}</h2>
          <IconButton icon="close" label="Close" onClick={onClose} />
        </div>
        {children}
      </div>
    </dialog>
  );
}

export function CopyButton({ text, label = "Copy" }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(typeof text === "function" ? text() : text);
      setDone(true);
      setTimeout(() => setDone(false), 1200);
    } catch {
      // no clipboard on plain http from elsewhere
    }
  };
  return <IconButton icon={done ? "check" : "copy"} label={done ? "Copied" : label} onClick={copy} />;
}
