// Light, dark, or as the system has it; and the colours for what is drawn by hand.
import { createKept } from "./store.js";

export const theme = createKept("hocket.theme", { choice: "system" });
const dark = matchMedia("(prefers-color-scheme: dark)");

export const isDark = () => (theme.get().choice === "system" ? dark.matches : theme.get().choice === "dark");

function apply() {
  document.documentElement.dataset.theme = isDark() ? "dark" : "light";
}
apply();
theme.subscribe(apply);
dark.addEventListener("change", () => {
  apply();
  theme.set({ ...theme.get() });
});

export function cycleTheme() {
  const order = ["system", "light", "dark"];
  theme.set({ choice: order[(order.indexOf(theme.get().choice) + 1) % order.length] });
}

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
