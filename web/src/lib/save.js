// Files to and from the user.

export function download(name, data, type) {
  const url = URL.createObjectURL(new Blob([data], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

// The text of a file that the user chooses; null when none is.
export function openFile(accept) {
  return new Promise((resolve) => {
    const input = document.createElement("input");
    input.type = "file";
    input.accept = accept;
    input.addEventListener("change", async () => resolve(input.files[0] ? await input.files[0].text() : null));
    input.addEventListener("cancel", () => resolve(null));
    input.click();
  });
}
