// A model's text as DOM nodes: code blocks, `code` and **bold**; all else as it is. Never
// as HTML.

function element(name, text) {
  const node = document.createElement(name);
  node.textContent = text;
  return node;
}

function inline(text) {
  const nodes = [];
  let at = 0;
  for (const match of text.matchAll(/`([^`\n]+)`|\*\*([^*\n]+)\*\*/g)) {
    nodes.push(text.slice(at, match.index));
    nodes.push(match[1] ? element("code", match[1]) : element("strong", match[2]));
    at = match.index + match[0].length;
  }
  nodes.push(text.slice(at));
  return nodes;
}

export function render(text) {
  const nodes = [];
  // Odd parts are code; the last may still be on its way.
  text.split(/^```/m).forEach((part, index, parts) => {
    if (index % 2 === 0) {
      // The block itself keeps the distance.
      const after = index > 0 ? part.replace(/^\n+/, "") : part;
      nodes.push(...inline(index + 1 < parts.length ? after.replace(/\n+$/, "") : after));
      return;
    }
    const pre = document.createElement("pre");
    pre.tabIndex = 0;
    pre.append(element("code", part.replace(/^[^\n]*\n?/, "").replace(/\n$/, "")));
    nodes.push(pre);
  });
  return nodes;
}
