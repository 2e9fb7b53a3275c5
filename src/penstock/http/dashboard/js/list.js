// A list of rows that never jumps. While the pointer, the focus or a selection is in it its order holds: rows that
// left the answer stay, with their newest state, and new ones wait behind a button.
import {h, plural} from "./ui.js"

export class List {
	rows = []
	selected = new Set()
	all = false; // all matching rows are chosen, not only those of this page
	total = null
	next = null
	#fresh = true
	#waiting = []
	#newer = 0

	constructor(name, id, previous) {
		Object.assign(this, {name, id, rows: previous?.rows ?? [], total: previous?.total ?? null})
	}

	get #busy() {
		return this.selected.size > 0 || document.querySelector(`[data-list="${this.name}"] tbody:is(:hover, :focus-within)`) !== null
	}

	take(rows, {total = null, next = null}) {
		Object.assign(this, {total, next})
		const [own, found] = [this.rows, rows].map(some => new Map(some.map(row => [this.id(row), row])))
		this.#newer = rows.filter(row => !own.has(this.id(row))).length
		this.#waiting = rows
		if (this.#fresh || !this.rows.length || !this.#busy) this.showNewer()
		else this.rows = this.rows.map(row => found.get(this.id(row)) ?? row)
		this.#fresh = false
		return this.rows.map(this.id).filter(id => !found.has(id))
	}

	showNewer() {
		this.rows = this.#waiting
		this.#newer = 0
	}

	newer = noun => this.#newer > 0 && h("button.newer", {key: "newer", type: "button", act: "show-newer"}, `${plural(this.#newer, `newer ${noun}`)}. Show ${this.#newer === 1 ? "it" : "them"}`)

	merge(id, changes) {
		const index = this.rows.findIndex(row => this.id(row) === id)
		if (index >= 0) this.rows = this.rows.with(index, {...this.rows[index], ...changes})
		return index >= 0
	}

	select(ids, on) {
		this.all = false
		for (const id of ids) this.selected[on ? "add" : "delete"](id)
	}

	clear() {
		this.selected.clear()
		this.all = false
	}
}
