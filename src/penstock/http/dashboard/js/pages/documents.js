import {a, below, content, documentPill, field, filled, filter, filterForm, get, glyph, h, head, link, noMatch, nothingYet, num, pager, pane, pill, plural, sentence, submit, table, time, withCode, writeButtons} from "../ui.js"
import {List} from "../list.js"

const FIELDS = {path: "Path, such as **/*.pdf", file_type: "Type", collection: "Collection", tenant_id: "Tenant", tag: "Tag"}

export function open({query, read, previous}) {
	const {why: asked, cursor, ...filters} = query
	const list = new List("documents", one => one.source_id, previous?.list)
	const page = read("page", async () => {
		const found = await get("/documents", {...filters, cursor, limit: 50})
		list.take(found.documents, found)
		return found
	}, 2000)
	const store = read("store", async () => (await get("/health/status")).store, 3000)
	const why = asked && read("why", () => get("/why", {path: asked, tenant_id: query.tenant_id, collection: query.collection, branch: query.branch}), 3000)
	const nothing = () => Object.keys(filters).length ? noMatch("document") : nothingYet()
	return {
		list,
		hear(kind, data) {
			if (kind !== "document") return
			list.merge(data.source_id, data)
			page.refresh()
			store.refresh()
		},
		acts: {"show-newer": () => list.showNewer()},
		forms: {narrow: form => filter(filled(form, null)), why: form => filter({...filled(form, null), cursor})},
		view: () => h("div.wrap",
			head("Documents", store.value && `${plural(store.value.documents, "document")} searchable, ${plural(store.value.chunks, "chunk")}${store.value.failed ? `, ${plural(store.value.failed, "document")} failed` : ""}`, writeButtons()),
			h("div.columns.side",
				h("section.pane", {label: "List of documents"}, filterForm(["documents"], query, FIELDS, {branch: "branch"}), list.newer("document"),
					content({...page, value: page.value ?? list.rows.length > 0}, () => (list.rows.length ? documentTable(list) : nothing())), pager(["documents"], query, list.next)),
				pane("Where is my file?", {}, h("div.pad", h("form.filters.flat", {"data-form": "why"}, field("why", "Path of a file or folder", asked), submit("Ask")),
					why ? content(why, answer) : h("p.muted", "Search finds it, or here is why not. The same as ", h("code", "penstock why PATH"), "."))))),
	}
}

const documentTable = list => table("documents", [
	["Document", one => [h("a.path", {href: link(["documents", one.source_id])}, one.path), h("span.sub2", one.error ?? [one.file_type || "note", one.title, ...one.tags].filter(Boolean).join(" · "))], "wide"],
	["State", one => documentPill(one.status), "state"], ["Pages", one => num(one.pages), "right"], ["Chunks", one => num(one.chunks), "right"],
	["Indexed", one => one.indexed_at ? time(one.indexed_at) : "–", "right muted"],
], list.rows, list.id)

const VERDICTS = {indexed: "done", partial: "held", indexing: "running", unknown: "cancelled", folder: "pending"}
const verdict = word => VERDICTS[word] ?? word

const answer = reason => h("div.why-answer",
	h("p", pill(verdict(reason.verdict), reason.verdict), " ", reason.source_id ? a(link(["documents", reason.source_id]), reason.path) : h("b", reason.path)),
	h("p", sentence(reason.cause)), h("p.muted", withCode(reason.remedy)), reason.job_id && h("p", a(link(["jobs", reason.job_id]), "The job that looked at it")),
	[...reason.warnings, ...reason.missing].map(words => h("p.muted", words)),
	h("ul.plain-list", reason.below.slice(0, 50).map(one => h("li", glyph(verdict(one.verdict)), h("span", h("b", below(one.path, reason.path)), h("span.sub2", one.cause))))))
