import {h} from "./dom.js"
import {link} from "./router.js"
import {manyTenants, mayWrite, tenantName} from "./session.js"

export const icon = (name, width = 15, kind = "icon") => h(`svg.${kind}`, {width, height: width}, h("use", {href: `/icons.svg#${name}`}))
export const a = (href, ...words) => h("a", {href}, words)

export const button = (words, act, {kind = "", image = null, ...props} = {}) =>
	h("button.btn", {class: kind, act, ...props}, image && icon(image), words)

const indexButton = () => button("Index a folder", "index-folder", {kind: "primary", image: "plus"})
export const writeButtons = () => mayWrite() && [button("Add a note", "add-note"), indexButton()]
export const submit = (words, kind = "") => h("button.btn", {type: "submit", class: kind}, words)
export const noMatch = noun => empty(`No ${noun} matches these filters`, "Take one off, or look at all.", {act: h("a.btn", {href: `#/${noun}s`}, "Clear filters")})

export const pane = (title, {sub, end} = {}, ...content) =>
	h("section.pane", {key: title, label: title},
		h("header", h("h2", title), sub && h("span.sub", sub), end && h("span.end", end)), content)

export const withCode = text => (text ?? "").split("`").map((part, index) => (index % 2 ? h("code", part) : part))

export const note = (title, words, ...acts) =>
	h("div.note", {key: "note", role: "alert"}, icon("st-failed", 16, "glyph.st-failed"), h("div", h("b", title), h("p", words)), acts.length > 0 && h("div.acts", acts))

export const problemNote = error => error && note(`${error.message.replace(/\.$/, "")}${error.code && ` (${error.code})`}.`,
	[withCode(error.remedy), error.passing && " This page tries again every 5 s."])

export const empty = (title, words, {act, command, picture} = {}) =>
	h("div.empty", picture && icon("empty", 132),
	h("h3", title), h("p", words), act, command && h("p.command", act && "or ", h("code", command)))

export const nothingYet = () => empty("Nothing has been indexed yet", "Give Penstock a folder; it becomes searchable file by file while you watch.",
	{picture: true, command: "penstock index ~/notes", act: mayWrite() && indexButton()})

export const content = (resource, view) => [problemNote(resource.error), resource.value ? view(resource.value) : !resource.error && h("p.loading", "Reading…")]

export const sr = words => h("span.sr", words)

// A table. Columns are `[title, cell(row), class]`; a title that starts with "." is only for screen readers.
export function table(name, columns, rows, id, isChosen = () => false) {
	const used = columns.filter(Boolean)
	return h(`table.table.${name}`, {class: name === "plain" ? "" : "cards", "data-list": name},
		h("thead", h("tr", used.map(([title, , kind]) => h("th", {scope: "col", class: kind}, title[0] === "." ? sr(title.slice(1)) : title)))),
		h("tbody", rows.map(row => h("tr", {key: id(row), "data-id": id(row), class: isChosen(row) ? "chosen" : null}, used.map(([, cell, kind]) => h("td", {class: kind}, cell(row)))))))
}

export const tenantColumn = () => manyTenants() && ["Tenant", one => tenantName(one.tenant_id), "muted tenant"]

export const facts = entries => h("dl.facts.pad", entries.filter(Boolean).map(([name, value]) => [h("dt", name), h("dd", value)]))

export const tabs = (label, items, current) =>
	h("nav.tabs", {label: label}, items.map(([value, words, href, number]) =>
		h("a", {key: value, href, current: value === current ? "true" : null}, words, number !== undefined && h("b.num", number))))

export const scroller = (tag, label, ...children) => h(tag, {tabindex: 0, role: "region", label}, children)

export const field = (name, words, value = "", props = {}, options = null) =>
	h("label.field", {key: name}, words, h(options ? "select" : "input", {name, value, autocomplete: "off", spellcheck: "false", ...props},
		options?.map(([one, shown]) => h("option", {value: one}, shown))))

export const ownFields = (names, query) => Object.entries(names).filter(([name]) => name !== "tenant_id" || manyTenants()).map(([name, words]) => field(name, words, query[name]))

export function filterForm(parts, query, names, others, ...more) {
	const chips = Object.keys({...names, ...others}).filter(name => query[name])
	return [h("details", {open: window.innerWidth > 720}, h("summary.pad", "Filters"), h("form.filters", {role: "search", "data-form": "narrow"}, ownFields(names, query), more, submit("Filter"))),
		chips.length > 0 && h("div.filters", {key: "chips"}, chips.map(name => h("a.chip", {key: name, href: link(parts, {...query, [name]: null, cursor: null}), label: `Remove filter ${name} ${query[name]}`}, name.replace("_id", ""), h("b", query[name]), icon("close", 12))))]
}

export function filled(form, blank) {
	const entries = [...new FormData(form)].map(([name, value]) => [name, value.trim() || blank])
	return Object.fromEntries(entries.filter(([, value]) => value !== undefined))
}

export const crumbs = (...parts) =>
	h("nav.crumbs", {label: "Where you are"}, parts.filter(Boolean).map((part, index) => [index > 0 && icon("right", 12), part]))

export const head = (title, meta, ...acts) => h("div.head", {key: "head"}, h("div", h("h1", title), meta && h("div.meta", meta)), h("div.acts", acts))

export const copyButton = (text, what) =>
	h("button.icon-button", {act: "copy", "data-text": text, label: `Copy ${what}`}, icon("copy", 14))

export const pager = (parts, query, next) => {
	const to = (words, cursor) => h("a.btn.small", {href: link(parts, {...query, cursor})}, words)
	return (query.cursor || next) && h("nav.pager", {label: "Pages"}, query.cursor && to("First page", null), next && to("Next page", next))
}
