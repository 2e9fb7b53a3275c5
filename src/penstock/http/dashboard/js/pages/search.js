import {a, content, count, empty, field, filled, filter, get, h, head, link, ownFields, pane, pill, plural, post, sentence, submit} from "../ui.js"

const FIELDS = {path: "Path", collection: "Collection", file_type: "Type", tag: "Tag", tenant_id: "Tenant"}
const MODES = [["hybrid", "words and meaning"], ["keyword", "words"], ["vector", "meaning"]]

const MARKS = ["\u0002", "\u0003"]

export function open({query, read, previous}) {
	const {q = "", mode = "hybrid", ...narrow} = query
	const asked = JSON.stringify({query: q, mode, limit: 20, marks: MARKS, ...narrow})
	const known = previous?.asked === asked ? previous.found.value : null
	const found = q && read("found", async () => {
		const began = performance.now()
		return known ?? {...(await post("/search", JSON.parse(asked))), took: performance.now() - began}
	}, 600000)
	if (found) found.value = known
	const status = read("status", () => get("/health/status"), 3000)
	return {
		found, asked,
		hear: kind => kind === "document" && status.refresh(),
		forms: {search: form => filter(filled(form, null))},
		view: () => h("div.wrap", head("Search"),
			h("form.pane.filters.search-form", {role: "search", "data-form": "search"}, field("q", "Query", q, {type: "search"}), field("mode", "By", mode, {}, MODES), ownFields(FIELDS, query), submit("Search", "primary")),
			status.value?.indexing_in_progress && h("p.muted", "Indexing is going on, so hits may be missing. ", a("#/", "See how far")),
			h("div.muted", {role: "status"}, found?.value ? summary(found.value) : ""),
			found ? content(found, results)
				: pane("Ask", {}, empty("Ask in your own words", "Words between double quotes must stand together.", {command: "penstock search \"how does the mill take in water\""}))),
	}
}

const summary = ({hits, took, corrections}) => `${plural(hits.length, "hit")} in ${Math.round(took)} ms.${corrections.map(one => ` Searched for "${one.searched}" instead of "${one.word}".`).join("")}`

function results({hits, notes}) {
	if (!hits.length) return pane("Result", {}, empty("Nothing found", "Use fewer or other words, or ask why a file is missing.", {act: h("a.btn", {href: "#/documents"}, "Where is my file?")}))
	return [notes.map(one => h("p.muted", one)), h("ol.hits", hits.map(hit =>
		h("li.pane", {key: hit.chunk_id},
			h("h2", a(link(["documents", hit.source_id], {page: hit.page ?? 1, chunk: hit.chunk_id, show: "text"}), hit.path)),
			h("p.sub2", [hit.page && `${hit.page_unit} ${count(hit.page)}`, hit.first_line && `${hit.position_unit} ${count(hit.first_line)}`, hit.heading, hit.collection].filter(Boolean).join(", "), hit.weak && [" ", pill("skipped", "weak")]),
			h("p.snippet", marked(hit.snippet || hit.text)),
			h("p.sub2", why(hit), hit.also_in.length > 0 && ` · the same text in ${plural(hit.also_in.length, "other place")}`))))]
}

const why = hit => sentence([
	hit.words.length > 0 && `has ${hit.words.join(", ")}`, hit.keyword_rank && `place ${hit.keyword_rank} by words`,
	hit.vector_rank && `place ${hit.vector_rank} by meaning`, hit.similarity !== null && `similarity ${hit.similarity.toFixed(2)}`,
].filter(Boolean).join(", "))

// Found words stand between the marks: text of documents is never read as HTML.
const marked = text => text.split(MARKS[0]).map((part, index) => {
	const [word, ...rest] = index ? part.split(MARKS[1]) : ["", part]
	return [word && h("mark", word), rest]
})
