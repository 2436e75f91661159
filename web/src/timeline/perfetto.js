// The kept steps as a file, or handed to ui.perfetto.dev in a window of its own. Nothing leaves this browser before that is clicked, and
// the timeline itself is passed from window to window.
import { getBuffer } from "../lib/api.js";
import { download } from "../lib/save.js";

const SITE = "https://ui.perfetto.dev";

export async function saveTrace() {
  download("hocket-steps.trace.json", await getBuffer("/steps/trace"), "application/json");
}

export async function openInPerfetto() {
  const other = window.open(SITE); // at once, or it counts as a pop-up
  if (other === null) throw new Error("the browser did not open a window");
  const buffer = await getBuffer("/steps/trace");
  await new Promise((resolve, reject) => {
    const ping = setInterval(() => other.postMessage("PING", SITE), 100);
    const end = (act, value) => {
      clearInterval(ping);
      clearTimeout(late);
      removeEventListener("message", onMessage);
      act(value);
    };
    const onMessage = (event) => {
      if (event.origin !== SITE || event.data !== "PONG") return;
      other.postMessage({ perfetto: { buffer, title: "hocket: the last steps", fileName: "hocket-steps.trace.json" } }, SITE);
      end(resolve);
    };
    const late = setTimeout(() => end(reject, new Error("ui.perfetto.dev does not answer; download the timeline and open it there")), 20_000);
    addEventListener("message", onMessage);
  });
}
