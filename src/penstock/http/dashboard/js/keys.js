import {go, here, isOpen} from "./ui.js"

export const HELP = "/:search|?:this help|g o:overview|g j:jobs|g f:failures|g d:documents|g s:search page|g c:schedules|g w:workers|j k:next, previous row|x:choose row|Enter:open|r:retry|c:cancel (asks)|Esc:back"
	.split("|").map(one => one.split(":"))
const PAGES = {o: [], j: ["jobs"], f: ["failures"], d: ["documents"], s: ["search"], c: ["schedules"], w: ["workers"]}
export const keysOff = () => localStorage.getItem("penstock.keys") === "off"
export const switchKeys = () => localStorage.setItem("penstock.keys", keysOff() ? "on" : "off")

const currentRow = () => document.activeElement.closest("tr[data-id]")

function move(step) {
	const rows = [...document.querySelectorAll("main tr[data-id]")]
	const at = rows.indexOf(currentRow())
	rows[Math.min(Math.max(at + step, 0), rows.length - 1)]?.querySelector("a")?.focus()
}

const press = act => (currentRow() ?? document.querySelector("main .head"))?.querySelector(`[data-act=${act}]`)?.click()

export function listenToKeys(run) {
	let after = null
	const handlers = {
		"/": () => (document.querySelector("main input[name=q]") ?? document.querySelector(".find input")).focus(),
		j: () => move(1),
		k: () => move(-1),
		x: () => currentRow()?.querySelector("input")?.click(),
		r: () => press("retry-job"),
		c: () => press("cancel-job"),
	}
	document.addEventListener("keydown", event => {
		if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isOpen()) return
		const inField = event.target.matches("input:not([type=checkbox]), textarea, select")
		if (event.key === "Escape") {
			if (inField) event.target.blur()
			else if (here().parts.length > 1) go(here().parts.slice(0, -1))
		}
		if (inField) return
		if (event.key === "?") run("help", document.body, event)
		if (keysOff()) return
		if (after === "g" && PAGES[event.key]) go(PAGES[event.key])
		else if (handlers[event.key]) {
			event.preventDefault()
			handlers[event.key]()
		}
		after = event.key
	})
}
