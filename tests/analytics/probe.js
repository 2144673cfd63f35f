// Measures what a reader sees: contrast of every text against what is behind it, and what does not fit.
const rgb = text => text.match(/[\d.]+/g).map(Number);
const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
  .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const contrast = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
const behind = node => {
  for (; node; node = node.parentElement) {
    const colour = rgb(getComputedStyle(node).backgroundColor);
    if (colour.length === 3 || colour[3] > 0) return colour;
  }
  return [255, 255, 255];
};
const pale = [], outside = [];
for (const node of document.querySelectorAll("body *")) {
  if (["SCRIPT", "STYLE", "title"].includes(node.tagName)) continue;
  if (![...node.childNodes].some(child => child.nodeType === 3 && child.textContent.trim())) continue;
  const style = getComputedStyle(node), svg = node.closest("svg");
  const ratio = contrast(light(rgb(svg ? style.fill : style.color)), light(behind(node)));
  if (ratio < 4.5) pale.push(`${ratio.toFixed(1)} ${node.textContent.slice(0, 40)}`);
  if (svg && node.tagName === "text") {
    const box = node.getBBox(), room = svg.viewBox.baseVal;
    if (box.x < -1 || box.y < -1 || box.x + box.width > room.width + 1 || box.y + box.height > room.height + 1)
      outside.push(node.textContent);
  }
}
const said = document.createElement("pre");
said.id = "probe";
said.textContent = JSON.stringify({
  pale, outside, paper: rgb(getComputedStyle(document.body).backgroundColor), charts: document.querySelectorAll("svg[role=img]").length,
  wide: document.documentElement.scrollWidth > innerWidth, scripts: document.scripts.length - 1,
  headings: [...document.querySelectorAll("h1, h2")].map(each => each.textContent),
});
document.body.append(said);
