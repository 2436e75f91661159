// One answer as it comes.
import { postEvents } from "../lib/api.js";
import { addBlock } from "./blocks.js";

// Calls `show` with the answer so far, at most once a frame, and at the end. Never throws: what went wrong is the answer's error.
export async function streamAnswer(request, start, show, signal) {
  let answer = start;
  let frame = null;
  const began = performance.now();
  const later = () => {
    frame ??= requestAnimationFrame(() => {
      frame = null;
      show(answer);
    });
  };
  try {
    await postEvents(
      "/v1/chat/completions",
      { ...request, stream: true, stream_options: { include_usage: true } },
      (block) => {
        answer = addBlock(answer, block);
        later();
      },
      signal,
    );
  } catch (error) {
    if (error.name === "AbortError") answer = { ...answer, finish: "stopped" };
    else answer = { ...answer, error: { message: error.message, hint: error.hint ?? null } };
  }
  if (frame !== null) cancelAnimationFrame(frame);
  answer = { ...answer, tookMs: performance.now() - began };
  show(answer);
  return answer;
}
