import {h, patch} from "./dom.js"
import {button, problemNote} from "./parts.js"

let current = null
const place = id => document.getElementById(id)

// Ask a question; null after Esc. The first focus is on the safe button, or on the first field.
// `submit(form)` does the work: what it returns is the answer, and what it throws is shown in the dialog.
export function ask(question) {
	close(null)
	return new Promise(resolve => {
		current = {no: "Not now", ...question, resolve, opener: document.activeElement}
		draw()
		const dialog = place("dialogs").firstChild
		dialog.showModal()
		dialog.querySelector("[autofocus], [data-act=dialog-no]")?.focus()
	})
}

export const isOpen = () => current !== null

function draw() {
	const one = current
	patch(place("dialogs"), one && h("dialog", {"aria-labelledby": "dialog-title"}, h("form", {method: "dialog", "data-form": "dialog"},
		h("h2", {id: "dialog-title"}, one.title), one.words && h("p", one.words),
		one.list?.length > 0 && h("ul", one.list.map(item => h("li", item))), one.body, problemNote(one.error),
		h("div.acts", one.no && button(one.no, "dialog-no"),
			one.yes && h("button.btn", {type: "submit", class: one.danger ? "danger" : "primary", disabled: one.busy}, one.yes)))))
}

export function close(answer) {
	if (!current) return
	const {resolve, opener} = current
	current = null
	draw()
	if (opener?.isConnected) opener.focus({preventScroll: true})
	resolve(answer)
}

async function send(form) {
	const one = current
	if (one.busy) return
	one.busy = true
	one.error = null
	draw()
	try {
		const answer = await one.submit?.(form)
		if (current === one) close(answer ?? true)
	} catch (error) {
		one.error = error
	}
	one.busy = false
	if (current === one) draw()
}

const toasts = []
const TOAST_MS = 8000

export function toast(strong, words = "", href = null) {
	const id = crypto.randomUUID()
	toasts.push({id, strong, words, href})
	toasts.splice(0, toasts.length - 3)
	drawToasts()
	const leave = () => {
		const element = place(id)
		if (element?.matches(":hover, :focus-within")) setTimeout(leave, 1000)
		else {
			toasts.splice(0, toasts.length, ...toasts.filter(one => one.id !== id))
			drawToasts()
		}
	}
	setTimeout(leave, TOAST_MS)
}

const drawToasts = () => patch(place("toasts"), toasts.map(({id, strong, words, href}) =>
	h("div.toast", {key: id, id}, h("span", h("b", strong), ` ${words}`), href && h("a", {href}, "Show"))))

let lastSaid = -Infinity
let waiting = null
// Say an end or an error to screen readers, one in five seconds at most; figures are silent.
export function announce(words) {
	clearTimeout(waiting)
	waiting = setTimeout(() => {
		lastSaid = performance.now()
		place("announce").textContent = words
	}, Math.max(lastSaid + 5000 - performance.now(), 0))
}

document.addEventListener("submit", event => {
	if (event.target.dataset.form !== "dialog") return
	event.preventDefault()
	send(event.target)
})
document.addEventListener("cancel", event => {
	event.preventDefault()
	if (current?.no) close(null)
}, true)
document.addEventListener("click", event => event.target.closest("[data-act=dialog-no]") && close(null))
