// A value that components follow.
import { useEffect, useState } from "preact/hooks";

export function createStore(value) {
  const listeners = new Set();
  return {
    get: () => value,
    set(next) {
      value = typeof next === "function" ? next(value) : next;
      listeners.forEach((tell) => tell(value));
    },
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

export function useStore(store) {
  const [value, setValue] = useState(store.get());
  useEffect(() => {
    setValue(store.get());
    return store.subscribe((next) => setValue(() => next));
  }, [store]);
  return value;
}

// Kept by the browser under a name; what cannot be kept is only not kept.
export function createKept(name, initial) {
  let value = initial;
  try {
    const text = localStorage.getItem(name);
    if (text !== null) value = { ...initial, ...JSON.parse(text) };
  } catch {
    // unreadable: begin anew
  }
  const store = createStore(value);
  store.subscribe((next) => {
    try {
      localStorage.setItem(name, JSON.stringify(next));
    } catch {
      // full or forbidden
    }
  });
  return store;
}
