// The model that is served; asked once, and again with a new key.
import { useEffect, useState } from "preact/hooks";
import { getJson } from "./api.js";

let asked = null;
addEventListener("hocket-key", () => (asked = null));

export function useModel() {
  const [model, setModel] = useState(null);
  useEffect(() => {
    asked ??= getJson("/get_model_info").catch(() => {
      asked = null;
      return null;
    });
    asked.then(setModel);
  }, []);
  return model;
}
