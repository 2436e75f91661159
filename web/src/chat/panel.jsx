// The settings of the chat: the system prompt, how tokens are chosen, tools, form.
import { useModel } from "../lib/model.js";
import { useStore } from "../lib/store.js";
import { IconButton } from "../ui/parts.jsx";
import { numbers, sampling } from "./settings.js";
import { setSystem, talk } from "./talk.js";

const exampleTool = `[
  {
    "name": "get_weather",
    "description": "The weather of a city now",
    "parameters": {
      "type": "object",
      "properties": { "city": { "type": "string" } },
      "required": ["city"]
    }
  }
]`;

function jsonProblem(text) {
  if (text.trim() === "") return null;
  try {
    JSON.parse(text);
    return null;
  } catch (error) {
    return error.message;
  }
}

function JsonField({ label, value, onInput, placeholder }) {
  const problem = jsonProblem(value);
  return (
    <label class="field">
      <span>{label}</span>
      <textarea class="code-input" rows="7" spellcheck={false} value={value} placeholder={placeholder} aria-invalid={problem !== null} onInput={(e) => onInput(e.currentTarget.value)} />
      {problem && <span class="field-problem">{problem}</span>}
    </label>
  );
}

export function ChatPanel({ onClose }) {
  const s = useStore(sampling);
  const { current } = useStore(talk);
  const model = useModel();
  const set = (name, value) => sampling.set({ ...sampling.get(), [name]: value });
  const defaults = model?.preferred_sampling_params ?? {};
  const changed = numbers.some(({ name }) => s[name] !== "") || s.stop || s.tools || s.format !== "text" || s.reasoning_effort || s.thinking;
  return (
    <aside class="panel" aria-label="Settings of the chat">
      <div class="panel-head">
        <h2>Settings</h2>
        <IconButton icon="close" label="Close the settings" onClick={onClose} />
      </div>
      <label class="field">
        <span>System prompt</span>
        <textarea rows="4" value={current.system} placeholder="Who the model is, and how it is to answer" onInput={(e) => setSystem(e.currentTarget.value)} />
      </label>
      <fieldset>
        <legend>How tokens are chosen</legend>
        <div class="number-grid">
          {numbers.map(({ name, label, low, high, step }) => (
            <label class="field" key={name}>
              <span>{label}</span>
              <input
                type="number"
                inputMode="decimal"
                min={low}
                max={high}
                step={step === 1 ? 1 : "any"}
                value={s[name]}
                placeholder={defaults[name] != null ? `${defaults[name]}` : "default"}
                onInput={(e) => set(name, e.currentTarget.value)}
              />
            </label>
          ))}
        </div>
        <label class="field">
          <span>Stop at, a line each</span>
          <textarea rows="2" value={s.stop} onInput={(e) => set("stop", e.currentTarget.value)} />
        </label>
        <label class="check">
          <input type="checkbox" checked={s.logprobs} onChange={(e) => set("logprobs", e.currentTarget.checked)} />
          Token probabilities, the best
          <select value={s.top_logprobs} disabled={!s.logprobs} aria-label="How many alternatives" onChange={(e) => set("top_logprobs", Number(e.currentTarget.value))}>
            {[0, 3, 5, 10, 20].map((n) => (
              <option key={n} value={n}>
                {n}
              </option>
            ))}
          </select>
        </label>
      </fieldset>
      <fieldset>
        <legend>Reasoning</legend>
        <div class="number-grid two">
          <label class="field">
            <span>Effort</span>
            <select value={s.reasoning_effort} onChange={(e) => set("reasoning_effort", e.currentTarget.value)}>
              <option value="">default</option>
              {["low", "medium", "high"].map((name) => (
                <option key={name}>{name}</option>
              ))}
            </select>
          </label>
          <label class="field">
            <span>Thinking</span>
            <select value={s.thinking} onChange={(e) => set("thinking", e.currentTarget.value)}>
              <option value="">default</option>
              <option value="on">on</option>
              <option value="off">off</option>
            </select>
          </label>
        </div>
      </fieldset>
      <fieldset>
        <legend>Form and tools</legend>
        <label class="field">
          <span>Answer as</span>
          <select value={s.format} onChange={(e) => set("format", e.currentTarget.value)}>
            <option value="text">text</option>
            <option value="json_object">any JSON object</option>
            <option value="json_schema">JSON of a schema</option>
          </select>
        </label>
        {s.format === "json_schema" && <JsonField label="Schema" value={s.schema} placeholder='{"type": "object", "properties": {…}}' onInput={(text) => set("schema", text)} />}
        <JsonField label="Tools" value={s.tools} placeholder={exampleTool} onInput={(text) => set("tools", text)} />
        {s.tools === "" && (
          <button type="button" class="small" onClick={() => set("tools", exampleTool)}>
            Put in the example
          </button>
        )}
      </fieldset>
      {changed && (
        <button
          type="button"
          class="quiet"
          onClick={() => {
            const cleared = Object.fromEntries(numbers.map(({ name }) => [name, ""]));
            sampling.set({ ...sampling.get(), ...cleared, stop: "", tools: "", format: "text", reasoning_effort: "", thinking: "" });
          }}
        >
          Back to the server's defaults
        </button>
      )}
    </aside>
  );
}
