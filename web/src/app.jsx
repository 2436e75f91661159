// The shell: which page, light or dark, the key, the shortcuts.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { ChatPage } from "./chat/chat.jsx";
import { start } from "./chat/talk.js";
import { ExpertsPage } from "./experts/experts.jsx";
import { onKeyNeeded, setKey } from "./lib/api.js";
import { beginLooking, live, lookNow } from "./lib/live.js";
import { useStore } from "./lib/store.js";
import { cycleTheme, theme } from "./lib/theme.js";
import { LivePage } from "./live/live.jsx";
import { SetupPage } from "./setup/setup.jsx";
import { TimelinePage } from "./timeline/timeline.jsx";
import { Icon } from "./ui/icons.jsx";
import { Dialog, IconButton } from "./ui/parts.jsx";

const pages = [
  { name: "chat", title: "Chat", Page: ChatPage },
  { name: "live", title: "Live", Page: LivePage },
  { name: "experts", title: "Experts", Page: ExpertsPage },
  { name: "timeline", title: "Timeline", Page: TimelinePage },
  { name: "setup", title: "Setup", Page: SetupPage },
];
const nameHere = () => location.hash.replace(/^#\/?/, "");
const go = (name) => (location.hash = `#/${name}`);

function Status({ onKey }) {
  const { now, error } = useStore(live);
  if (error?.status === 401)
    return (
      <button type="button" class="status warn" onClick={onKey} title={error.message}>
        <i />
        <span>key</span>
      </button>
    );
  const [tone, text] = error ? ["bad", error.message] : now === null ? ["", "asking"] : now.ready ? ["good", "ready"] : ["warn", now.why_not_ready];
  return (
    <span class={`status ${tone}`} role="status" title={text}>
      <i />
      <span class="status-text">{now?.ready && !error ? "ready" : error ? "no answer" : tone === "warn" ? "not ready" : "…"}</span>
    </span>
  );
}

function KeyDialog({ problem, onDone }) {
  const [text, setText] = useState("");
  const [keep, setKeep] = useState(false);
  return (
    <Dialog title="This server needs a key" onClose={onDone}>
      <form
        class="key-form"
        onSubmit={(event) => {
          event.preventDefault();
          setKey(text, keep);
          onDone();
          // Pages ask when they are opened: the one that is shown begins anew.
          dispatchEvent(new Event("hocket-key"));
          lookNow();
        }}
      >
        <p class="muted">{problem}. It is the one of --api-key, and goes to this server alone.</p>
        <input type="text" autocomplete="username" value="hocket" hidden readOnly />
        <input type="password" autocomplete="current-password" aria-label="Key" value={text} onInput={(e) => setText(e.currentTarget.value)} />
        <label class="check">
          <input type="checkbox" checked={keep} onChange={(e) => setKeep(e.currentTarget.checked)} /> Keep it in this browser
        </label>
        <button type="submit" class="primary" disabled={text.trim() === ""}>
          Use it
        </button>
      </form>
    </Dialog>
  );
}

const shortcuts = [
  ["Alt 1 … 5", "the pages"],
  ["Enter", "send"],
  ["Shift Enter", "a new line"],
  ["Escape", "stop the answer"],
  ["Alt N", "a new conversation"],
  ["/", "to the message"],
  ["Ctrl Enter", "send an edited message as a branch"],
  ["← →", "tokens, steps, experts"],
  ["+ − 0", "zoom a step"],
  ["?", "this list"],
];

function HelpDialog({ onClose }) {
  return (
    <Dialog title="Keys" onClose={onClose}>
      <dl class="shortcuts">
        {shortcuts.map(([keys, what]) => (
          <div key={keys}>
            <dt>
              <kbd>{keys}</kbd>
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}

const isTyping = (element) => ["INPUT", "TEXTAREA", "SELECT"].includes(element?.tagName) || element?.isContentEditable;

// Here, as in App, the listeners are there before anything is seen: no key that is pressed at once is lost.
function useShortcuts(showHelp, toComposer) {
  useLayoutEffect(() => {
    const onKey = (event) => {
      if (event.ctrlKey || event.metaKey) return;
      if (event.altKey) {
        const page = pages[Number(event.code.replace("Digit", "")) - 1];
        if (event.code.startsWith("Digit") && page) go(page.name);
        else if (event.code === "KeyN") {
          go("chat");
          start();
        } else return;
        event.preventDefault();
      } else if (isTyping(event.target)) return;
      else if (event.key === "?") showHelp();
      else if (event.key === "/") {
        toComposer();
        event.preventDefault();
      }
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
}

export function App() {
  const [name, setName] = useState(nameHere());
  const [keyProblem, setKeyProblem] = useState(null); // why the dialog is open
  const [help, setHelp] = useState(false);
  const [turn, setTurn] = useState(0); // a new key: the page begins anew
  const { choice } = useStore(theme);
  const wantsComposer = useRef(false); // as soon as the chat is there
  useLayoutEffect(() => {
    const onHash = () => setName(nameHere());
    let mayAsk = true; // once, until the user gives one
    const onKey = () => {
      mayAsk = true;
      setTurn((n) => n + 1);
    };
    addEventListener("hashchange", onHash);
    addEventListener("hocket-key", onKey);
    const off = onKeyNeeded((error) => {
      if (mayAsk) setKeyProblem(error.message);
      mayAsk = false;
    });
    beginLooking();
    return () => {
      removeEventListener("hashchange", onHash);
      removeEventListener("hocket-key", onKey);
      off();
    };
  }, []);
  const focusComposer = () => {
    const box = document.getElementById("composer");
    box?.focus();
    wantsComposer.current = box === null;
  };
  useShortcuts(
    () => setHelp(true),
    () => {
      go("chat");
      focusComposer();
    },
  );
  const page = pages.find((p) => p.name === name) ?? pages[0];
  useLayoutEffect(() => {
    document.title = `${page.title} · hocket`;
    if (wantsComposer.current) focusComposer();
  }, [page]);
  return (
    <div class="shell">
      <a class="skip" href="#main" onClick={(e) => (e.preventDefault(), document.getElementById("main").focus())}>
        To the content
      </a>
      <nav class="rail" aria-label="Pages">
        <a class="brand" href="#/chat" aria-label="hocket">
          <svg width="30" height="30" viewBox="0 0 32 32" aria-hidden="true">
            <rect class="brand-box" width="32" height="32" rx="9" />
            <g class="voice-a">
              <rect x="6" y="9" width="8" height="5" rx="2.5" />
              <rect x="18" y="9" width="8" height="5" rx="2.5" />
            </g>
            <g class="voice-b">
              <rect x="11" y="18" width="8" height="5" rx="2.5" />
              <rect x="23" y="18" width="4" height="5" rx="2" />
              <rect x="5" y="18" width="3" height="5" rx="1.5" />
            </g>
          </svg>
        </a>
        {pages.map((p) => (
          <a key={p.name} class={`rail-link ${p === page ? "current" : ""}`} href={`#/${p.name}`} aria-current={p === page ? "page" : undefined}>
            <Icon name={p.name} size={20} />
            <span>{p.title}</span>
          </a>
        ))}
        <div class="rail-foot">
          <Status onKey={() => setKeyProblem("this server needs an API key")} />
          <IconButton icon={{ system: "auto", light: "sun", dark: "moon" }[choice]} label={`Colours: ${choice === "system" ? "as the system has it" : choice}`} onClick={cycleTheme} />
          <IconButton icon="help" label="Keys" class="desktop-only" onClick={() => setHelp(true)} />
        </div>
      </nav>
      <main id="main" tabIndex={-1} class={page.name === "chat" ? "main-chat" : "main-page"}>
        <page.Page key={`${page.name}-${turn}`} />
      </main>
      {keyProblem !== null && <KeyDialog problem={keyProblem} onDone={() => setKeyProblem(null)} />}
      {help && <HelpDialog onClose={() => setHelp(false)} />}
    </div>
  );
}
