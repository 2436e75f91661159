import { defineConfig } from "vite";
import preact from "@preact/preset-vite";

// The page is served at `/`, its files at `/ui/` (src/server/page.h). `npm run dev` asks a server that runs on port 30000.
const api = ["/v1", "/live", "/steps", "/overlap", "/speculation", "/expert_distribution", "/get_server_info", "/get_model_info", "/tokenize"];
const backend = process.env.HOCKET_URL ?? "http://127.0.0.1:30000";

export default defineConfig(({ command }) => ({
  base: command === "build" ? "/ui/" : "/",
  plugins: [preact({ devToolsEnabled: false, prefreshEnabled: command === "serve" })],
  build: { target: "es2022", cssCodeSplit: false, assetsInlineLimit: 0, modulePreload: false, reportCompressedSize: true },
  server: { proxy: Object.fromEntries(api.map((path) => [path, backend])) },
}));
