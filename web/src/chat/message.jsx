// One message, and what can be done with it.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { duration, exact, rate } from "../lib/format.js";
import { Icon } from "../ui/icons.jsx";
import { CopyButton, IconButton, Notice } from "../ui/parts.jsx";
import { toHtml } from "./markdown.js";
import { TokenView } from "./tokens.jsx";

function Markdown({ text }) {
  const html = useMemo(() => toHtml(text), [text]);
  const onClick = async (event) => {
    const button = event.target.closest(".code-copy");
    if (!button) return;
    try {
      await navigator.clipboard.writeText(button.closest(".code").querySelector("code").textContent);
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1200);
    } catch {
      button.textContent = "No clipboard";
    }
  };
  return <div class="markdown" onClick={onClick} dangerouslySetInnerHTML={{ __html: html }} />;
}

function Reasoning({ text, streaming, answering }) {
  const [open, setOpen] = useState(null);
  const isOpen = open ?? (streaming && !answering);
  return (
    <div class="reasoning">
      <button type="button" class="fold" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        <Icon name={isOpen ? "down" : "right"} size={14} />
        {streaming && !answering ? "Reasoning…" : "Reasoning"}
        <span class="muted">{exact(text.length)} characters</span>
      </button>
      {isOpen && (
        <div class="reasoning-text">
          <Markdown text={text} />
        </div>
      )}
    </div>
  );
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function Call({ call, answered, onAnswer, streaming }) {
  const [text, setText] = useState("");
  return (
    <div class="call">
      <div class="call-head">
        <Icon name="tool" size={15} />
        <b>{call.name || "…"}</b>
        <span class="muted">{call.id}</span>
      </div>
      <pre>
        <code>{streaming ? call.text : pretty(call.text)}</code>
      </pre>
      {!streaming && !answered && (
        <form
          class="call-answer"
          onSubmit={(event) => {
            event.preventDefault();
            onAnswer(call, text);
          }}
        >
          <input value={text} onInput={(e) => setText(e.currentTarget.value)} placeholder="What the tool answers" aria-label={`Answer of ${call.name}`} />
          <button type="submit" class="small">
            Send
          </button>
        </form>
      )}
    </div>
  );
}

function Editor({ text, onSave, onCancel }) {
  const [value, setValue] = useState(text);
  const ref = useRef(null);
  useEffect(() => {
    ref.current.focus();
    ref.current.setSelectionRange(value.length, value.length);
  }, []);
  return (
    <form
      class="editor"
      onSubmit={(event) => {
        event.preventDefault();
        onSave(value);
      }}
    >
      <textarea
        ref={ref}
        value={value}
        aria-label="Edit the message"
        rows={Math.min(12, value.split("\n").length + 1)}
        onInput={(e) => setValue(e.currentTarget.value)}
        onKeyDown={(e) => {
          if (e.key === "Escape") onCancel();
          if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) onSave(value);
        }}
      />
      <div class="editor-tools">
        <button type="button" class="quiet" onClick={onCancel}>
          Cancel
        </button>
        <button type="submit" class="primary" disabled={value.trim() === ""}>
          Send as a new branch
        </button>
      </div>
    </form>
  );
}

function Facts({ node }) {
  const { usage, timings } = node;
  const parts = [];
  if (usage) {
    const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
    const fetched = Object.entries(usage.prompt_tokens_details?.cached_tokens_details ?? {})
      .filter(([tier, tokens]) => tier !== "memory" && tokens > 0)
      .map(([tier, tokens]) => `, ${exact(tokens)} from ${tier}`)
      .join("");
    parts.push(`${exact(usage.prompt_tokens)} in${cached > 0 ? ` (${exact(cached)} cached${fetched})` : ""}`, `${exact(usage.completion_tokens)} out`);
  }
  if (timings?.ttft_ms != null) parts.push(`first token ${duration(timings.ttft_ms)}`);
  if (timings?.tokens_per_second) parts.push(`${rate(timings.tokens_per_second)} tokens/s`);
  if (node.finish && node.finish !== "stop" && node.finish !== "tool_calls") parts.push({ length: "cut at the limit", stopped: "stopped by you", abort: "aborted" }[node.finish] ?? node.finish);
  const split = timings && `Reading ${duration(timings.text_ms)}, waiting ${duration(timings.queue_ms)}, prompt ${duration(timings.prefill_ms)}, answer ${duration(timings.decode_ms)}`;
  return (
    <span class="facts" title={split || undefined}>
      {parts.join(" · ")}
    </span>
  );
}

function Branches({ siblings, node, onSwitch }) {
  if (siblings.length < 2) return null;
  const at = siblings.findIndex((other) => other.id === node.id);
  return (
    <span class="branches" role="group" aria-label="Branches">
      <IconButton icon="left" size={14} label="Branch before" disabled={at === 0} onClick={() => onSwitch(siblings[at - 1].id)} />
      <span>
        {at + 1} / {siblings.length}
      </span>
      <IconButton icon="right" size={14} label="Branch after" disabled={at === siblings.length - 1} onClick={() => onSwitch(siblings[at + 1].id)} />
    </span>
  );
}

export function Message({ node, siblings, streaming, busy, answered, act }) {
  const [mode, setMode] = useState("text"); // text, edit, tokens
  const isUser = node.role === "user";
  const who = { user: "You", assistant: "Model", tool: "Tool" }[node.role];
  const answering = node.content !== "" || node.calls?.length > 0;
  return (
    <article class={`message ${node.role}`} aria-label={`${who}${streaming ? ", answering" : ""}`}>
      <div class="message-body" aria-live={streaming ? "off" : undefined}>
        {node.role === "tool" && <div class="tool-label muted">Answer of {node.toolName || "a tool"}</div>}
        {node.reasoning && <Reasoning text={node.reasoning} streaming={streaming} answering={answering} />}
        {mode === "edit" ? (
          <Editor
            text={node.content}
            onCancel={() => setMode("text")}
            onSave={(text) => {
              setMode("text");
              act.edit(node, text);
            }}
          />
        ) : mode === "tokens" && !streaming ? (
          <TokenView node={node} busy={busy} onTake={(index, text) => act.branchAt(node, index, text)} />
        ) : isUser || node.role === "tool" ? (
          <div class="plain">{node.content}</div>
        ) : node.content !== "" ? (
          <Markdown text={node.content} />
        ) : null}
        {streaming && !answering && !node.reasoning && (
          <div class="waiting-dots" role="status" aria-label="Waiting for the first token">
            <i />
            <i />
            <i />
          </div>
        )}
        {node.calls?.map((call, i) => (
          <Call key={i} call={call} streaming={streaming} answered={answered.has(call.id) || busy} onAnswer={(c, text) => act.answerCall(node, c, text)} />
        ))}
        {node.error && (
          <Notice tone="bad" title={node.error.message}>
            {node.error.hint}
          </Notice>
        )}
      </div>
      {!streaming && mode !== "edit" && (
        <div class="message-tools">
          <Branches siblings={siblings} node={node} onSwitch={act.switchTo} />
          {node.role === "assistant" && <Facts node={node} />}
          <span class="message-buttons">
            {node.role === "assistant" && (
              <IconButton icon="tokens" size={16} label={mode === "tokens" ? "Show the text" : "Inspect tokens"} pressed={mode === "tokens"} onClick={() => setMode(mode === "tokens" ? "text" : "tokens")} />
            )}
            {node.role === "assistant" && <IconButton icon="again" size={16} label="Answer again" disabled={busy} onClick={() => act.again(node)} />}
            {isUser && <IconButton icon="edit" size={16} label="Edit" disabled={busy} onClick={() => setMode("edit")} />}
            <CopyButton text={node.content} label="Copy the text" />
            <IconButton icon="trash" size={16} label="Delete this and what follows" disabled={busy} onClick={() => act.remove(node)} />
          </span>
        </div>
      )}
    </article>
  );
}
