// The conversations that this browser keeps.
import { useState } from "preact/hooks";
import { ago } from "../lib/format.js";
import { download, openFile } from "../lib/save.js";
import { useStore } from "../lib/store.js";
import { Icon } from "../ui/icons.jsx";
import { IconButton } from "../ui/parts.jsx";
import { discard, open, start, take, talk } from "./talk.js";
import { asExport, asMarkdown, pathOf, readExport } from "./tree.js";

const textOf = (conversation) => `${conversation.title} ${Object.values(conversation.nodes).map((n) => n.content).join(" ")}`.toLowerCase();
const fileName = (conversation) => (conversation.title || "conversation").toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") || "conversation";

export function ConversationList({ onDone, onProblem }) {
  const { all, current } = useStore(talk);
  const [search, setSearch] = useState("");
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const found = words.length === 0 ? all : all.filter((c) => words.every((word) => textOf(c).includes(word)));
  const importFile = async () => {
    const text = await openFile(".json,application/json");
    if (text === null) return;
    const conversations = readExport(text);
    if (conversations === null) onProblem({ message: "this file holds no conversations", hint: "it is to be one that this page exported" });
    else take(conversations);
    onDone();
  };
  return (
    <nav class="conversations" aria-label="Conversations">
      <div class="conversations-head">
        <button
          type="button"
          class="primary wide-button"
          onClick={() => {
            start();
            onDone();
          }}
        >
          <Icon name="plus" size={16} /> New conversation
        </button>
        {all.length > 3 && <input type="search" placeholder="Search" aria-label="Search the conversations" value={search} onInput={(e) => setSearch(e.currentTarget.value)} />}
      </div>
      <ul>
        {found.map((c) => (
          <li key={c.id} class={c.id === current.id ? "current" : ""}>
            <button
              type="button"
              class="conversation"
              aria-current={c.id === current.id ? "true" : undefined}
              onClick={() => {
                open(c.id);
                onDone();
              }}
            >
              <span class="conversation-title">{c.title || "Without a title"}</span>
              <span class="muted">{ago(c.changed)}</span>
            </button>
            <IconButton icon="trash" size={15} label={`Delete ${c.title || "the conversation"}`} class="conversation-delete" onClick={() => confirm(`Delete “${c.title || "the conversation"}”? It is kept nowhere else.`) && discard(c.id)} />
          </li>
        ))}
        {found.length === 0 && <li class="muted none">{all.length === 0 ? "None yet. They stay in this browser." : "None like that."}</li>}
      </ul>
      <div class="conversations-foot">
        <button type="button" class="quiet" onClick={importFile}>
          Import
        </button>
        <button type="button" class="quiet" disabled={all.length === 0} onClick={() => download("hocket-conversations.json", asExport(all), "application/json")}>
          Export all
        </button>
        <button type="button" class="quiet" disabled={pathOf(current).length === 0} onClick={() => download(`${fileName(current)}.md`, asMarkdown(current), "text/markdown")}>
          As Markdown
        </button>
      </div>
    </nav>
  );
}
