import {a, address, bar, baseName, button, content, copyButton, count, crumbs, documentPill, empty, filter, get, glyph, h, head, icon, known, link, manyTenants, mark, mayWrite, note, pane, perMinute, pill, plural, scroller, sentence, statusWords, tabs, tenantName, time, timeLeft} from "../ui.js"
import {removeDocument} from "../actions.js"
import {LETTERS, PageMap} from "../page_map.js"

const UNITS = {ocr: "pages to text", vector: "chunks to vectors", graphrag: "chunks to entities"}
const PICTURES = /^(pdf|png|jpe?g|tiff?|webp|gif|bmp)$/
const SPAN = 40 // pages of the tree that are read at once

export function open({id, query, read, previous}) {
	const path = `/documents/${encodeURIComponent(id)}`
	const page = Number(query.page) || 1
	const state = previous?.state ?? {map: new PageMap(), open: new Set([page]), first: Math.max(page - 2, 1)}
	const detail = read("detail", () => get(path, {limit: 1}))
	const tree = read("tree", () => get(`${path}/tree`, {first: state.first, last: state.first + SPAN - 1}))
	const text = read("text", () => get(`${path}/pages/${page}`))
	const frames = query.chunk && query.show !== "text" && read("frames", () => get(`${path}/pages/${page}/frames`))
	detail.value = previous?.detail.value ?? null
	tree.value = previous?.tree.value ?? null
	// The window of the tree follows a chosen page only when that is outside.
	if (page < state.first || page >= state.first + SPAN) state.first = Math.max(page - 2, 1)
	const choose = (number, chunk = null) => filter({page: number, chunk}, true)
	const shown = {page, state, chunk: query.chunk ?? null, only: query.only ?? "", show: query.show, to: changes => link(["documents", id], {...query, ...changes})}
	return {
		detail, tree, state,
		hear(kind, data) {
			if (kind !== "document" || data.source_id !== id) return
			detail.refresh()
			tree.refresh()
		},
		acts: {
			"remove-document": () => removeDocument(detail.value),
			map: (element, event) => choose(state.map.click(event, element) ?? page),
			unzoom: () => { state.map.zoom = null; },
			"toggle-page": ({dataset}) => {
				const number = Number(dataset.page)
				if (!state.open.delete(number)) state.open.add(number)
				choose(number)
			},
			"choose-chunk": ({dataset}) => choose(dataset.page, dataset.chunk),
			"tree-window": ({dataset}) => {
				state.first = Number(dataset.first)
				tree.hurry()
			},
		},
		keydown(event) {
			if (event.target.role === "treeitem") treeKeys(event)
		},
		view: () => h("div.wrap", !detail.value && h("h1.sr", "Document"), content(detail, value => [
			headOf(value), value.error && note(sentence(value.error), value.indexed_at && "Search still finds the version before."),
			phasesPane(value.progress, tree.value),
			h("div.trio", h("div.stack", mapPane(tree, shown), generationsPane(value)), treePane(tree, shown), originalPane(path, value, tree.value, text, frames?.value, shown)),
		])),
	}
}

function headOf(value) {
	const current = value.generations.find(one => one.current)
	const building = value.generations.find(one => one.state === "building")
	const tenant_id = manyTenants() && value.tenant_id
	const {collection} = value
	return [
		crumbs(a("#/documents", "Documents"), a(link(["documents"], {collection, tenant_id}), tenant_id && `${tenantName(tenant_id)} / `, collection), h("span", value.file_type || "note")),
		head(baseName(value.path), [documentPill(value.status),
			current ? h("span", "Searchable now: ", h("b", `generation ${current.number}`), ", since ", time(current.published_at), ".") : h("span", "Not searchable yet."),
			building && h("span", `Generation ${building.number} replaces it when it is complete${known(value.rate) ? `, in ${timeLeft(value.time_left_s)} (${perMinute(value.rate, value.rate_unit)})` : ""}.`), h("span.id", value.path, copyButton(value.path, "the path"))],
		h("a.btn", {href: link(["search"], {path: value.path, collection, tenant_id})}, icon("search"), "Search in it"), mayWrite() && button("Remove", "remove-document", {kind: "warn"})),
	]
}

function tally(letters = "") {
	const sum = {}
	for (const letter of letters) sum[LETTERS[letter]] = (sum[LETTERS[letter]] ?? 0) + 1
	return sum
}

const phasesPane = (progress, tree) => h("section.pane.phases", {key: "phases", label: "Phases"}, (tree?.phases ?? Object.keys(UNITS)).map(phase => {
	const status = progress[`${phase}_status`]
	const asked = ![undefined, "skipped", "none"].includes(status)
	const [total, done] = phase === "ocr" ? [progress.total_pages, progress.ocr_completed_pages] : [progress.total_chunks, progress[`${phase}_completed_chunks`]]
	const {done: _, ...rest} = tally(tree?.states[phase])
	const failed = phase === "ocr" ? progress.ocr_failed_pages : rest.failed
	return h("div", {key: phase}, h("h2", phase, h("span.sub", UNITS[phase]), asked && h("span.end", h("b.num", count(done)), ` of ${count(total)}`)),
		asked ? [bar({done, failed, running: rest.running}, total, `${phase}: ${count(done)} of ${count(total)}`, {active: rest.running > 0}),
			h("p", statusWords(rest, " pages") || (done === total ? "Complete." : sentence(status)))] : h("p", "Not asked for."))
}))

const mapPane = (tree, {page, state: {map}}) => pane("Pages", {sub: tree.value && `rows: ${tree.value.phases.join(", ")}`, end: map.zoom && button("All pages", "unzoom", {kind: "small"})},
	h("div.pad", content(tree, ({page_count: pages, states, phases}) => {
		map.pages = pages
		return pages ? [map.shape.each > 1 && h("p.muted", `One cell is the worst of ${map.shape.each} pages; a click zooms in.`), map.view(states, phases, page),
			h("div.legend", ["done", "running", "pending", "failed", "skipped"].map(status => mark(status, status)))] : empty("No pages yet", "They show up as the file is read.")
	})))

const generationsPane = ({generations}) => pane("Generations", {sub: "search sees exactly one"}, h("ul.generations", generations.map(one => h("li", {key: one.number},
	h("b.num", one.number), time(one.published_at ?? one.created_at), one.current ? pill("done", "searchable") : one.state === "building" ? pill("running", "building") : pill("skipped", one.state),
	h("p", [plural(one.pages, "page"), plural(one.chunks, "chunk"), one.failed && `${count(one.failed)} failed`, one.note].filter(Boolean).join(", "))))))

const WORDS = {completed: "done", processing: "running"}

const glyphs = (phases, status) => h("span.three", phases.map(phase => {
	const word = WORDS[status(phase)] ?? status(phase) ?? "none"
	return h("span", {title: `${phase}: ${word}`}, word !== "none" && [glyph(word), h("span.sr", `${phase} ${word}. `)])
}))

const treePane = (tree, {page, chunk, only, state, to}) => h("section.pane", {key: "tree", label: "Pages and chunks"}, content(tree, ({phases, states, pages, page_count: total}) => {
	const failed = Array.from({length: total}, (_, index) => index + 1).filter(number => phases.some(phase => states[phase]?.[number - 1] === "f"))
	const chunks = new Map(pages.map(one => [one.page, one.chunks]))
	const shown = only ? failed.slice(0, 500) : [...chunks.keys()]
	const [first, last] = [pages[0]?.page ?? 1, pages.at(-1)?.page ?? 0]
	const error = chunks.get(page)?.find(one => one.chunk_id === chunk)?.error
	const focus = shown.includes(page) ? page : shown[0]
	const more = (from, words) => !only && h("button.newer", {key: words, act: "tree-window", "data-first": from}, words)
	const row = (chosen, focused, act, data, ...parts) => h("div.tree-row", {class: chosen ? "chosen" : "", role: "treeitem", "aria-selected": String(chosen), tabindex: focused ? 0 : -1, act, ...data}, parts)
	const chunkRow = number => one => h("li", {role: "none", key: one.chunk_id}, row(one.chunk_id === chunk, one.chunk_id === chunk, "choose-chunk", {"data-page": number, "data-chunk": one.chunk_id},
		h("span"), h("span", one.heading && h("b", one.heading), h("span.preview", one.preview)), glyphs(phases.slice(1), phase => one[phase])))
	const pageRow = number => {
		const open = state.open.has(number)
		return h("li", {role: "none", key: number}, row(number === page && !chunk, number === focus && !chunk, "toggle-page", {"data-page": number, "aria-expanded": String(open)},
			icon(open ? "down" : "right", 14), h("span", h("b", `Page ${count(number)}`), chunks.has(number) && h("span.muted", ` ${plural(chunks.get(number).length, "chunk")}`)), glyphs(phases, phase => LETTERS[states[phase]?.[number - 1]])),
		open && h("ul", {role: "group"}, chunks.get(number)?.map(chunkRow(number))))
	}
	return [
		h("header", h("h2", "Pages and chunks"), tabs("Filter", [["", "All", to({only: null})], ["failed", "Failed", to({only: "failed"}), count(failed.length)]], only)),
		error && h("div.why-note", h("b", sentence(error))), first > 1 && more(Math.max(first - SPAN, 1), `Pages before ${count(first)}`),
		shown.length ? h("ul.tree", {role: "tree", label: "Pages"}, shown.map(pageRow)) : empty(only ? "No page failed" : "No pages", "Every phase took every page."),
		last < total && more(last + 1, `Pages ${count(last + 1)} to ${count(Math.min(last + SPAN, total))}`),
	]
}))

function originalPane(path, value, tree, text, frames, {page, chunk, show, to}) {
	const picture = show !== "text" && PICTURES.test(value.file_type)
	const chosen = tree?.pages.find(one => one.page === page)?.chunks.find(one => one.chunk_id === chunk)
	const step = (number, words, sign) => number >= 1 && number <= value.pages && h("a.btn.small", {href: to({page: number, chunk: null}), label: words}, sign)
	return h("section.pane", {key: "original", label: "Original"},
		h("header", h("h2", "Original"), tabs("View", [["", "Page image", to({show: null})], ["text", "Text", to({show: "text"})]], picture ? "" : "text"),
			h("span.end", step(page - 1, "Page before", "‹"), h("span.sub.num", `page ${count(page)} of ${count(value.pages)}`), step(page + 1, "Next page", "›"))),
		h("div.pad", picture ? imageView(path, page, chosen, frames?.frames.find(one => one.chunk_id === chunk)?.boxes) : content(text, found => textView(found, chosen))))
}

function imageView(path, page, chosen, boxes) {
	const share = (first, last = 0) => `${(first - last) * 100}%`
	return h("figure.sheet", {key: page}, h("img", {src: address(`${path}/pages/${page}/image`, {width: 900}), alt: `Page ${page} as it looks`}),
		h("p.muted", "There is no picture of this page. Its text is on the other tab."),
		boxes?.map(([left, top, right, bottom]) => h(`div.frame.st-${chosen?.error ? "failed" : "running"}`, {style: {left: share(left), top: share(top), width: share(right, left), height: share(bottom, top)}})))
}

function textView({text, confidence, engine, warnings}, chosen) {
	const inside = line => line >= chosen?.first_line && line <= chosen?.last_line
	return [h("p.muted", [engine && `read by ${engine}`, confidence && `confidence ${Math.round(confidence)} %`, ...(warnings ?? [])].filter(Boolean).join(", ")),
		scroller("pre.page-text", "Text of the page", text.split("\n").map((line, index) => h("span", {class: inside(index + 1) ? "inside" : null}, `${line}\n`)))]
}

function treeKeys(event) {
	const items = [...event.target.closest("[role=tree]").querySelectorAll("[role=treeitem]")]
	const at = items.indexOf(event.target)
	const expanded = event.target.ariaExpanded
	const press = () => event.target.click()
	const act = {
		ArrowDown: () => items[at + 1]?.focus(), ArrowUp: () => items[at - 1]?.focus(), Enter: press, " ": press,
		ArrowRight: () => expanded === "false" ? press() : items[at + 1]?.focus(),
		ArrowLeft: () => expanded === "true" ? press() : items.slice(0, at).findLast(item => item.ariaExpanded)?.focus(),
	}[event.key]
	if (!act) return
	event.preventDefault()
	act()
}
