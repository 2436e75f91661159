// The answer token by token: how sure the model was, what else it might have said, and the way to let it say that.
import { useEffect, useRef, useState } from "preact/hooks";
import { duration, percent } from "../lib/format.js";

const share = (logprob) => Math.exp(logprob);
// Spaces and ends of lines, so that they can be seen where they stand alone.
const shown = (text) => text.replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/^ /, "·");

function level(logprob) {
  const p = share(logprob);
  return p >= 0.9 ? 0 : p >= 0.6 ? 1 : p >= 0.3 ? 2 : p >= 0.1 ? 3 : 4;
}

function Detail({ token, index, onTake, busy }) {
  const ref = useRef(null);
  useEffect(() => ref.current.scrollIntoView({ block: "nearest" }), [index]);
  const known = token.top.some((t) => t.text === token.text) ? token.top : [{ text: token.text, logprob: token.logprob }, ...token.top];
  return (
    <div class="token-detail" ref={ref}>
      <div class="token-detail-head">
        Token {index + 1}: <code>{shown(token.text) || "∅"}</code> <b>{percent(share(token.logprob), 1)}</b>
        <span class="muted"> log-probability {token.logprob.toFixed(4)}</span>
      </div>
      <table class="alternatives">
        <caption class="visually-hidden">What the model might have said here</caption>
        <tbody>
          {known.map((t) => {
            const taken = t.text === token.text;
            return (
              <tr key={t.text} class={taken ? "taken" : ""}>
                <td>
                  <code>{shown(t.text) || "∅"}</code>
                </td>
                <td class="bar-cell">
                  <span class="bar" style={{ width: `${Math.max(0.5, 100 * share(t.logprob))}%` }} />
                </td>
                <td class="number">{percent(share(t.logprob), 1)}</td>
                <td>
                  {!taken && !t.text.startsWith("bytes:") && (
                    <button type="button" class="small" disabled={busy} onClick={() => onTake(index, t.text)}>
                      Continue with this
                    </button>
                  )}
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

export function TokenView({ node, onTake, busy }) {
  const [chosen, setChosen] = useState(null);
  const box = useRef(null);
  useEffect(() => setChosen(null), [node.id]);
  if (!node.tokens?.length)
    return <p class="muted">This answer came without probabilities. Turn on “Token probabilities” among the settings and ask again.</p>;
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = Math.min(node.tokens.length - 1, Math.max(0, (chosen ?? -1) + step));
    setChosen(next);
    box.current.querySelectorAll(".token")[next]?.focus();
  };
  const mean = node.tokens.reduce((all, t) => all + t.logprob, 0) / node.tokens.length;
  return (
    <div class="tokens">
      <div class="token-line" ref={box} role="group" aria-label="Tokens; arrow keys move" onKeyDown={move}>
        {node.tokens.map((token, i) => (
          <>
            <span
              role="button"
              key={i}
              class={`token level-${level(token.logprob)} ${chosen === i ? "chosen" : ""}`}
              tabIndex={i === (chosen ?? 0) ? 0 : -1}
              aria-pressed={chosen === i}
              title={percent(share(token.logprob), 1)}
              onClick={() => setChosen(chosen === i ? null : i)}
              onKeyDown={(e) => (e.key === "Enter" || e.key === " ") && (e.preventDefault(), setChosen(chosen === i ? null : i))}
            >
              {token.text.startsWith("bytes:") ? "�" : token.text.replace(/\n/g, "⏎")}
            </span>
            {token.text.includes("\n") && <br />}
          </>
        ))}
      </div>
      <p class="muted token-sum">
        {node.tokens.length} tokens, perplexity {Math.exp(-mean).toFixed(2)}
        {node.timings?.decode_ms > 0 && `, ${duration(node.timings.decode_ms / node.tokens.length)} each`}
      </p>
      {chosen !== null && node.tokens[chosen] && <Detail token={node.tokens[chosen]} index={chosen} onTake={onTake} busy={busy} />}
    </div>
  );
}
