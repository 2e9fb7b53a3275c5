import {announce, ask, button, clockSeconds, close, count, facts, get, glyph, go, h, here, icon, isOpen, login, logout, me, patch, Problem, problemNote, readMe, Resource, sentence} from "./ui.js"
import * as actions from "./actions.js"
import {HELP, keysOff, listenToKeys, switchKeys} from "./keys.js"
import {Stream} from "./stream.js"

const NAV = ["", "jobs", "failures", "documents", "search", "schedules", "workers"]
const DETAILS = {jobs: "job", documents: "document"}

let page = null
let drawing = null
const place = id => document.getElementById(id)
const on = (kind, act, early) => document.addEventListener(kind, act, early)

const reasons = new Resource(() => get("/queue/failures", {group: "reason"}), draw, 2000)
const stream = new Stream({hear, changed: draw, opened: refresh})

function refresh() {
	reasons.refresh()
	page?.resources.forEach(one => one.refresh())
}

function draw() {
	drawing ??= setTimeout(() => {
		drawing = null
		patch(place("top"), top())
		patch(place("tabbar"), tabbar())
		patch(place("strip"), strip())
		if (page) patch(place("main"), page.view())
		document.title = `${document.querySelector("h1")?.textContent ?? "Reading…"} · Penstock`
	}, 16)
}

const navLink = (name, image) => h("a", {key: name, href: `#/${name}`, current: (here().parts[0] ?? "") === name ? "page" : null}, image && icon(image, 20), sentence(name || "overview"),
	name === "failures" && reasons.value?.total > 0 && h("span.count.num", count(reasons.value.total)))

const top = () => [
	h("a.brand", {href: "#/", label: "Penstock, overview"}, h("img", {src: "/icon.svg", alt: "", width: 26, height: 26}), "Penstock"),
	h("nav.nav", {label: "Main"}, NAV.map(name => navLink(name))),
	h("form.find", {role: "search", "data-form": "find"}, icon("search"),
		h("input", {name: "q", type: "search", placeholder: "Search or paste an id", label: "Search documents, or paste an id", autocomplete: "off"}), h("kbd", "/")),
	h("span.live", {class: stream.state}, h("i"), sentence(stream.state)),
	me.auth === "session" && button("Sign out", "logout", {kind: "small bare"}),
	h("button.icon-button", {act: "theme", label: `Theme: ${theme() || "as the system"}`}, icon("theme", 18)),
]

const tabbar = () => NAV.map(name => navLink(name, name || "overview"))

const strip = () => stream.state === "lost" && !isOpen() && h("div.strip", glyph("held"),
	h("span", h("b", "Connection lost."), stream.lastAt && ` Figures are from ${clockSeconds(stream.lastAt)}.`, ` Next try in ${Math.max(Math.ceil((stream.nextTryAt - Date.now()) / 1000), 0)} s.`),
	button("Try now", "reconnect", {kind: "small"}))

async function open() {
	const {parts, query} = here()
	const [first = "", id] = parts
	const module = await import(`./pages/${(id ? DETAILS[first] : NAV.includes(first) && first) || "overview"}.js`)
	const name = parts.join("/")
	if (name !== here().parts.join("/")) return
	const previous = page?.name === name ? page : null
	page?.resources.forEach(one => one.close())
	page?.close?.()
	const resources = new Map()
	const read = (key, fetcher, gap) => {
		const one = new Resource(fetcher, draw, gap)
		resources.set(key, one)
		return one
	}
	page = {...module.open({id, query, previous, read, reasons, draw}), name, resources}
	resources.forEach(one => one.refresh())
	if (!previous) {
		window.scrollTo(0, 0)
		place("main").focus({preventScroll: true})
	}
	draw()
}

const theme = () => localStorage.getItem("penstock.theme") ?? ""
const applyTheme = () => document.documentElement.setAttribute("data-theme", theme())

const acts = {
	theme() {
		const themes = ["", "light", "dark"]
		localStorage.setItem("penstock.theme", themes[(themes.indexOf(theme()) + 1) % 3])
		applyTheme()
	},
	skip: () => place("main").focus(),
	reconnect: () => stream.connect(),
	"index-folder": actions.indexFolder,
	"add-note": actions.addNote,
	copy: element => actions.copyText(element.dataset.text),
	logout,
	help: () => ask({title: "Keys", body: [facts(HELP.map(([key, words]) => [h("kbd", key), words])), button(keysOff() ? "Switch keys on" : "Switch keys off", "switch-keys", {kind: "small"})], no: "Close"}),
	"switch-keys"() {
		switchKeys()
		close(null)
	},
}

// Run an action. Its button cannot be pressed again meanwhile, and a refusal is shown.
async function run(name, element, event) {
	const act = page?.acts?.[name] ?? acts[name]
	if (!act || element.ariaBusy === "true") return
	element.ariaBusy = "true"
	try {
		draw(await act(element, event))
	} catch (error) {
		if (!(error instanceof Problem)) throw error
		await actions.refused(error)
	} finally {
		element.ariaBusy = null
	}
}

// All handlers sit on the document: no update of a row can remove one.
on("click", event => {
	const element = event.target.closest("[data-act]")
	if (element?.matches("a")) event.preventDefault()
	if (element && !element.matches("input, select")) run(element.dataset.act, element, event)
})
on("change", event => {
	if (event.target.dataset.act) run(event.target.dataset.act, event.target, event)
})
on("submit", event => {
	event.preventDefault()
	if (event.target.dataset.form === "find") find(event.target)
	else page?.forms?.[event.target.dataset.form]?.(event.target)
})
on("keydown", event => page?.keydown?.(event))
// Errors of images do not bubble. A missing picture gives way to words.
on("error", event => event.target.parentElement?.classList.add("missing"), true)
on("penstock:login", login)
window.addEventListener("hashchange", () => {
	close(null)
	open()
})
window.addEventListener("resize", draw)

function find(form) {
	const text = form.elements.q.value.trim()
	form.reset()
	form.elements.q.blur()
	if (/^(job_|rag-)\S+$/.test(text)) go(["jobs", text])
	else if (/^[0-9a-f]{8}-[0-9a-f-]{27}$/.test(text)) go(["documents", text])
	else if (text) go(["search"], {q: text})
}

function hear(kind, data) {
	if (kind === "failures") reasons.refresh()
	if (kind === "document" && data.status === "indexed") announce(`${data.path} is searchable`)
	if (kind === "job" && !data.parent_id && ["done", "failed"].includes(data.status)) announce(`${data.folder_path ?? data.item_type}: ${data.status}`)
	page?.hear?.(kind, data)
	draw()
}

async function start() {
	applyTheme()
	for (;;) {
		try {
			await readMe()
			break
		} catch (error) {
			patch(place("main"), h("div.wrap", problemNote(error)))
			if (error.status === 401) return
			await new Promise(resolve => setTimeout(resolve, 5000))
		}
	}
	open()
	stream.connect()
	listenToKeys(run)
	// Relative times ("2 s ago") and the countdown of a reconnect move on.
	setInterval(() => document.hidden || draw(), 1000)
}

start()
