// Chat: the conversation in the middle, the others to the left, the settings to the right.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { createKept, useStore } from "../lib/store.js";
import { live } from "../lib/live.js";
import { useModel } from "../lib/model.js";
import { Icon } from "../ui/icons.jsx";
import { IconButton, Problem } from "../ui/parts.jsx";
import { ConversationList } from "./list.jsx";
import { Message } from "./message.jsx";
import { ChatPanel } from "./panel.jsx";
import { act, load, rename, say, stop, talk } from "./talk.js";
import { pathOf, siblingsOf } from "./tree.js";

const view = createKept("hocket.chat", { list: true, panel: false });
const draft = { text: "" };
const suggestions = ["What is 17 + 25?", "Tell me a story about a fox and a lantern.", "Count from 1 to 10."];
const isNarrow = () => matchMedia("(max-width: 900px)").matches;

function Composer({ busy }) {
  const [text, setText] = useState(draft.text);
  const ref = useRef(null);
  draft.text = text;
  useLayoutEffect(() => {
    const box = ref.current;
    box.style.height = "auto";
    box.style.height = `${Math.min(box.scrollHeight, 260)}px`;
  }, [text]);
  useEffect(() => {
    if (!isNarrow()) ref.current.focus();
  }, []);
  const send = () => {
    if (busy || text.trim() === "") return;
    say(text.trim());
    setText("");
  };
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <textarea
        ref={ref}
        id="composer"
        rows="1"
        value={text}
        placeholder="Say something"
        aria-label="Message"
        onInput={(e) => setText(e.currentTarget.value)}
        onKeyDown={(e) => {
          if (e.key === "Enter" && !e.shiftKey && !e.isComposing) {
            e.preventDefault();
            send();
          }
        }}
      />
      {busy ? (
        <button type="button" class="send" aria-label="Stop" title="Stop (Escape)" onClick={stop}>
          <Icon name="stop" size={20} />
        </button>
      ) : (
        <button type="submit" class="send" aria-label="Send" title="Send (Enter)" disabled={text.trim() === ""}>
          <Icon name="send" size={20} />
        </button>
      )}
    </form>
  );
}

// Stays at the end while the answer grows, unless the reader has gone up.
function useFollow(ref, what) {
  const atEnd = useRef(true);
  useEffect(() => {
    const box = ref.current;
    const note = () => (atEnd.current = box.scrollHeight - box.scrollTop - box.clientHeight < 60);
    box.addEventListener("scroll", note, { passive: true });
    return () => box.removeEventListener("scroll", note);
  }, []);
  useLayoutEffect(() => {
    if (atEnd.current) ref.current.scrollTop = ref.current.scrollHeight;
  }, [what]);
  return () => (atEnd.current = true);
}

function Welcome() {
  const { now } = useStore(live);
  const model = useModel();
  return (
    <div class="welcome">
      <h1>Ask {model?.served_model_name ?? "the model"}</h1>
      <p class="muted">What is said here goes to this server alone, and stays in this browser.</p>
      <div class="suggestions">
        {suggestions.map((text) => (
          <button type="button" key={text} onClick={() => say(text)} disabled={now !== null && !now.ready}>
            {text}
          </button>
        ))}
      </div>
    </div>
  );
}

export function ChatPage() {
  const state = useStore(talk);
  const shown = useStore(view);
  const [drawer, setDrawer] = useState(null); // on a narrow screen: list, panel
  const [problem, setProblem] = useState(null);
  const scroller = useRef(null);
  useEffect(() => void load(), []);
  const { current, streaming } = state;
  const path = pathOf(current);
  const here = streaming?.conversation === current.id ? streaming : null;
  const answered = new Set(path.filter((n) => n.role === "tool").map((n) => n.callId));
  const follow = useFollow(scroller, here?.partial ?? current);
  useEffect(() => {
    follow();
    scroller.current.scrollTop = scroller.current.scrollHeight;
  }, [current.id, here?.node]);
  useEffect(() => {
    const onKey = (event) => {
      if (event.key === "Escape" && !document.querySelector("dialog[open]")) stop();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  const toggle = (name) => {
    if (isNarrow()) setDrawer(drawer === name ? null : name);
    else view.set({ ...shown, [name]: !shown[name] });
  };
  return (
    <div class={`chat ${shown.list ? "" : "no-list"} ${shown.panel ? "with-panel" : ""} ${drawer ? `drawer-${drawer}` : ""}`}>
      <ConversationList onDone={() => setDrawer(null)} onProblem={setProblem} />
      <div class="thread">
        <div class="thread-head">
          <IconButton icon="menu" label="Conversations" pressed={isNarrow() ? drawer === "list" : shown.list} onClick={() => toggle("list")} />
          <input
            class="thread-title"
            aria-label="Title"
            value={current.title}
            placeholder="New conversation"
            disabled={path.length === 0}
            onChange={(e) => rename(current.id, e.currentTarget.value.trim())}
          />
          <IconButton icon="sliders" label="Settings of the chat" pressed={isNarrow() ? drawer === "panel" : shown.panel} onClick={() => toggle("panel")} />
        </div>
        <div class="messages" ref={scroller} tabIndex={-1}>
          <div class="messages-inner">
            {path.length === 0 && <Welcome />}
            {path.map((node) => (
              <Message
                key={node.id}
                node={here?.node === node.id ? { ...node, ...here.partial } : node}
                streaming={here?.node === node.id}
                siblings={siblingsOf(current, node)}
                busy={streaming !== null}
                answered={answered}
                act={act}
              />
            ))}
            <Problem error={problem ?? state.problem} />
          </div>
        </div>
        <div class="visually-hidden" role="status">
          {here ? "The model is answering" : path.at(-1)?.role === "assistant" ? "The answer is there" : ""}
        </div>
        <Composer busy={here !== null} key={current.id} />
      </div>
      <ChatPanel onClose={() => toggle("panel")} />
      {drawer && <button type="button" class="scrim" aria-label="Close" onClick={() => setDrawer(null)} />}
    </div>
  );
}
