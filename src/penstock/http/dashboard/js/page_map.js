// A map of all pages: each is a stack of cells, one for each phase, drawn as one path for each state, so that 20,000
// pages are a few elements. Above 1,000 a cell shows the worst of several pages, and a click zooms in.
import {count, h} from "./ui.js"

export const LETTERS = {f: "failed", r: "running", p: "pending", s: "skipped", c: "cancelled", d: "done", "-": "none"}
const WORST = Object.keys(LETTERS)
const [MOST, ZOOMED] = [1000, 500]
const [WIDE, STEP, TALL, ROW, LEFT] = [18, 21, 6.5, 26, 36]

export class PageMap {
	zoom = null
	pages = 0

	get shape() {
		const [from, to] = this.zoom ?? [1, this.pages]
		const shown = window.innerWidth > 1180 ? window.innerWidth * 0.24 : window.innerWidth - 70
		return {from, to, each: Math.ceil((to - from + 1) / MOST), columns: Math.max(Math.floor((shown - LEFT) / STEP), 6)}
	}

	click({clientX, clientY}, element) {
		const {from, to, each, columns} = this.shape
		const box = element.getBoundingClientRect()
		const scale = (LEFT + columns * STEP) / box.width
		const column = Math.floor(((clientX - box.left) * scale - LEFT) / STEP)
		const page = from + (Math.floor(((clientY - box.top) * scale) / ROW) * columns + column) * each
		if (column < 0 || column >= columns || page > to) return null
		if (each > 1) {
			const start = Math.max(Math.min(page - ZOOMED / 2, this.pages - ZOOMED + 1), 1)
			this.zoom = [start, Math.min(start + ZOOMED - 1, this.pages)]
		}
		return page
	}

	view(states, phases, chosen) {
		const {from, to, each, columns} = this.shape
		const place = cell => [LEFT + (cell % columns) * STEP, Math.floor(cell / columns) * ROW + 1]
		const cells = Math.ceil((to - from + 1) / each)
		const paths = {failed: [], running: []}
		for (let cell = 0; cell < cells; cell += 1) {
			const [x, top] = place(cell)
			const first = from - 1 + cell * each
			phases.forEach((phase, index) => {
				const letters = (states[phase] ?? "").slice(first, Math.min(first + each, to));
				(paths[LETTERS[WORST.find(letter => letters.includes(letter)) ?? "-"]] ??= []).push([x, top + index * (TALL + 1)])
			})
		}
		delete paths.none
		const draw = (kind, places, shape) => h(`path.${kind}`, {key: kind, d: places.map(([x, y]) => shape(x, y)).join("")})
		const rows = Math.ceil(cells / columns)
		const at = chosen >= from && chosen <= to && place(Math.floor((chosen - from) / each))
		return h("svg.page-map", {viewBox: `0 0 ${LEFT + columns * STEP} ${rows * ROW}`, act: "map", label: `Map of pages ${from} to ${to}`},
			h("defs", h("pattern", {id: "hatch", width: 4, height: 4, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)"}, h("path", {d: "M0 0V4"}))),
			Object.entries(paths).map(([status, places]) => draw(`fill.st-${status}`, places, (x, y) => `M${x} ${y}h${WIDE}v${TALL}h-${WIDE}z`)),
			draw("m-cross", paths.failed, (x, y) => `M${x + 7} ${y + 1.2}l4 4m0-4l-4 4`), draw("m-dash", paths.running, (x, y) => `M${x + 2} ${y + 3.2}h14`),
			Array.from({length: rows}, (_, row) => h("text", {x: LEFT - 6, y: row * ROW + 15, "text-anchor": "end"}, count(from + row * columns * each))),
			at && h("rect.m-chosen", {key: "at", x: at[0] - 2, y: at[1] - 2, width: WIDE + 4, height: ROW - 1, rx: 2}))
	}
}
