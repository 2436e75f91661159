// Keeps conversations: in this browser alone (IndexedDB), or in memory where that is forbidden.
const NAME = "hocket";
const STORE = "conversations";

function open() {
  return new Promise((resolve) => {
    let request;
    try {
      request = indexedDB.open(NAME, 1);
    } catch {
      resolve(null);
      return;
    }
    request.onupgradeneeded = () => request.result.createObjectStore(STORE, { keyPath: "id" });
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => resolve(null);
  });
}

const opened = open();

async function run(mode, act) {
  const db = await opened;
  if (db === null) return undefined;
  return new Promise((resolve) => {
    const transaction = db.transaction(STORE, mode);
    const request = act(transaction.objectStore(STORE));
    transaction.commit?.(); // now: a page that is left a moment later would undo it
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => resolve(undefined);
  });
}

export const readAll = async () => (await run("readonly", (store) => store.getAll())) ?? [];
export const write = (conversation) => run("readwrite", (store) => store.put(conversation));
export const remove = (id) => run("readwrite", (store) => store.delete(id));
