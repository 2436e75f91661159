// Markdown to HTML that is safe to show: what a model writes is nobody's command, and loads nothing from anywhere.
import DOMPurify from "dompurify";
import { Marked } from "marked";

const escape = (text) => text.replace(/[&<>"']/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" })[c]);

const marked = new Marked({
  gfm: true,
  breaks: true,
  renderer: {
    code({ text, lang }) {
      const name = (lang ?? "").split(/\s/)[0];
      return `<div class="code"><div class="code-head"><span>${escape(name || "text")}</span><button type="button" class="code-copy">Copy</button></div><pre><code>${escape(text)}</code></pre></div>`;
    },
    // An image would be fetched from wherever the model says.
    image({ href, text }) {
      return `<a href="${escape(href ?? "")}">${escape(text || href || "image")}</a>`;
    },
    html({ text }) {
      return escape(text);
    },
    table(token) {
      const row = (cells, tag) => `<tr>${cells.map((cell) => `<${tag}>${this.parser.parseInline(cell.tokens)}</${tag}>`).join("")}</tr>`;
      return `<div class="table-box"><table><thead>${row(token.header, "th")}</thead><tbody>${token.rows.map((r) => row(r, "td")).join("")}</tbody></table></div>`;
    },
  },
});

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName !== "A") return;
  node.setAttribute("target", "_blank");
  node.setAttribute("rel", "noopener noreferrer nofollow");
});

const rules = {
  ALLOWED_TAGS: ["a", "b", "blockquote", "br", "button", "code", "del", "div", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "i", "input", "li", "ol", "p", "pre", "s", "span", "strong", "sub", "sup", "table", "tbody", "td", "th", "thead", "tr", "ul"],
  ALLOWED_ATTR: ["href", "class", "type", "checked", "disabled", "start", "title"],
  ALLOW_DATA_ATTR: false,
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:|#)/i,
};

export const toHtml = (text) => DOMPurify.sanitize(marked.parse(text), rules);
