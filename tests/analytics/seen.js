// What somebody sees of a page: texts that are too pale, what is wider than the window, and where the keyboard can go.
(() => {
  const rgba = text => { const part = (text.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number); return [...part.slice(0, 3), part[3] ?? 1]; };
  const over = (top, under, opacity = 1) => {
    const share = top[3] * opacity;
    return [0, 1, 2].map(each => top[each] * share + under[each] * (1 - share)).concat(1);
  };
  const light = colour => colour.slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
  const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const behind = node => {  // all backgrounds up to the paper, the innermost on top
    const layers = [];
    for (; node; node = node.parentElement) layers.push(rgba(getComputedStyle(node).backgroundColor));
    return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255, 1]);
  };
  const opacity = node => node ? Number(getComputedStyle(node).opacity) * opacity(node.parentElement) : 1;
  const drawnOn = text => {  // the last shape before the text that covers its middle
    const box = text.getBoundingClientRect(), x = box.x + box.width / 2, y = box.y + box.height / 2;
    let under = behind(text.closest("svg").parentElement);
    for (const shape of text.closest("svg").querySelectorAll("rect, circle, path")) {
      const where = shape.getBoundingClientRect(), fill = getComputedStyle(shape).fill;
      const before = shape.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_FOLLOWING;
      const covers = where.x <= x && x <= where.right && where.y <= y && y <= where.bottom;
      if (before && covers && fill !== "none") under = over(rgba(fill), under, opacity(shape));
    }
    return under;
  };
  const shown = node => {
    const box = node.getBoundingClientRect(), style = getComputedStyle(node);
    return box.width > 0 && box.height > 0 && style.visibility === "visible";
  };
  const pale = [];
  const judge = (text, colour, under, share) => {
    const ratio = contrast(over(rgba(colour), under, share), under);
    if (ratio < 4.5) pale.push(`${ratio.toFixed(2)} ${text.trim().slice(0, 40)}`);
  };
  for (const node of document.body.querySelectorAll("*")) {
    if (!shown(node)) continue;
    const style = getComputedStyle(node);
    if (node.matches("input:not([type=checkbox])")) {
      judge(`${node.name} value`, style.color, behind(node), 1);
      judge(`${node.name} hint`, getComputedStyle(node, "::placeholder").color, behind(node), 1);
    }
    if (![...node.childNodes].some(child => child.nodeType === 3 && child.textContent.trim())) continue;
    const drawn = node.closest("svg");
    judge(node.textContent, drawn ? style.fill : style.color, drawn ? drawnOn(node) : behind(node), opacity(node));
  }
  window.reachable = () => [...document.querySelectorAll("a[href], button, input, select, [tabindex='0']")].filter(shown);
  const reach = window.reachable();
  const named = node => node.getAttribute("aria-label") || node.textContent.trim() || (node.labels && node.labels.length);
  return {
    pale, wide: document.documentElement.scrollWidth - innerWidth, stops: reach.length,
    nameless: reach.filter(node => !named(node)).map(node => node.outerHTML.slice(0, 80)),
    headings: [...document.querySelectorAll("h1, h2, h3")].map(each => Number(each.tagName[1])),
    language: document.documentElement.lang,
  };
})()
