import {clock, clockSeconds, count, duration, h, known} from "./ui.js"

const round = value => Math.round(value * 10) / 10
const narrow = () => window.innerWidth <= 720
const text = (x, y, words, kind = "", anchor = null) => h("text", {x: round(x), y, class: kind, "text-anchor": anchor}, words)

function ceilRound(value) {
	const ten = 10 ** Math.floor(Math.log10(Math.max(value, 1)))
	return [1, 2, 5, 10].map(step => step * ten).find(step => step >= value)
}

function water(values, {left = 0, top = 0, width, height, max}) {
	const runs = []
	values.forEach((value, index) => {
		if (!known(value)) return
		if (!known(values[index - 1])) runs.push([])
		runs.at(-1).push(`${round(left + (index * width) / Math.max(values.length - 1, 1))} ${round(top + height - (Math.min(value, max) / max) * height)}`)
	})
	const bottom = top + height
	return [h("path.water", {d: runs.map(run => `M${run[0].split(" ")[0]} ${bottom}L${run.join("L")}V${bottom}z`).join("")}),
		h("path.line", {d: runs.map(run => `M${run.join("L")}h.1`).join("")})]
}

export const tank = (values, max, label) => h("svg.tank", {viewBox: "0 0 240 84", preserveAspectRatio: "none", label},
	h("path.wall", {d: "M.5 .5h239v83H.5z"}), water(values, {top: 3, width: 240, height: 80, max}))

const bars = (values, left, step, tall, base) => values.map((value, index) => (value
	? `M${round(left + index * step)} ${round(base(index))}v-${round(tall(value))}h${round(Math.max(step - 1, 1))}v${round(tall(value))}z` : "")).join("")

export function spark(values) {
	const max = Math.max(...values, 1)
	return h("svg.spark", {viewBox: "0 0 110 26"}, h("path.axis", {d: "M0 25.5H110"}), h("path", {d: bars(values, 0, 110 / values.length, value => Math.max((value / max) * 24, 2), () => 25)}))
}

function ticks(from, to, x, y) {
	const step = ([1, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400].find(one => (to - from) / 1000 / one <= 5) ?? 604800) * 1000
	const zone = new Date(from).getTimezoneOffset() * 60000
	const found = []
	for (let at = Math.ceil((from - zone) / step) * step + zone; at <= to; at += step) found.push([x(at), (step < 60000 ? clockSeconds : clock)(new Date(at))])
	return found.map(([at, words]) => text(at, y, words, "", "middle"))
}

export function lastHour({waiting, done, failed, from, step, label}) {
	const [width, left, right] = narrow() ? [352, 40, 62] : [820, 46, 92]
	const plot = width - left - right
	const settled = done.map((value, index) => (known(value) ? value + (failed[index] ?? 0) : null))
	const [top, most] = [waiting, settled].map(values => ceilRound(Math.max(...values.map(value => value ?? 0))))
	const span = step * 1000 * done.length
	const tall = value => value ? Math.max((value / most) * 118, 2) : 0
	const grid = (low, max) => [0, 0.5, 1].map(part => [h("path.grid", {d: `M${left} ${low - 118 * part}h${plot}`}), text(left - 8, low - 118 * part + 4, count(max * part), "", "end")])
	const now = (values, y, noun) => [text(left + plot + 8, y, count(values.findLast(known)), "strong"), text(left + plot + 8, y + 15, noun)]
	return h("svg.chart", {viewBox: `0 0 ${width} 300`, label}, grid(132, top), grid(276, most),
		water(waiting, {left, top: 14, width: plot, height: 118, max: top}),
		h("path.fill.st-done", {d: bars(done, left, plot / done.length, tall, index => 276 - tall(failed[index]))}), h("path.fill.st-failed", {d: bars(failed, left, plot / done.length, tall, () => 276)}),
		ticks(from + span * 0.03, from + span, at => left + ((at - from) / span) * plot, 295), now(waiting, 26, "waiting"), now(settled, 170, narrow() ? "settled" : "settled/min"))
}

const KINDS = {pending: "waits", running: "runs", held: "back-off"}

export function timeline(rows, from, to, ended) {
	const width = narrow() ? 352 : 820
	const x = at => round(56 + ((at - from) / Math.max(to - from, 1)) * (width - 74))
	const height = 42 + rows.length * 34
	return h("svg.chart", {viewBox: `0 0 ${width} ${height}`, label: rows.map(row => `${row.name}: ${row.spans.map(span => `${KINDS[span.kind]} ${duration(span.to - span.from)}`).join(", ")}, ${row.words}`).join(". ")},
		ticks(from, to, x, 13),
		rows.map(({name, spans, words, bad}, index) => {
			const y = 42 + index * 34
			const last = spans.at(-1)
			const [start, end, room] = [x(last.from), x(last.to), words.length * 6 + 14]
			const label = last.kind === "running" && end - start > room ? text(start + 7, y, words, "inside") : width - end > room && text(end + 6, y, words, bad ? "bad" : "")
			return [text(0, y, name, "strong"), spans.map(span => h(`rect.fill.st-${span.kind}`, {x: x(span.from), y: y - 12, width: Math.max(x(span.to) - x(span.from), 2), height: 16, rx: 2})), label]
		}),
		!ended && [h("path.now", {d: `M${x(to)} 20V${height - 12}`}), text(x(to), height, "now", "strong", "end")])
}
