import {field, filled, filter, filterForm, h, head, known, link, noMatch, nothingYet, plural, sentence, tabs, writeButtons} from "../ui.js"
import {jobList} from "../job_parts.js"

const STATUSES = ["", "pending", "running", "done", "failed", "cancelled"]
const FIELDS = {q: "Part of a path or id", tenant_id: "Tenant", collection: "Collection", item_type: "Type", error: "Error code", held: "Held by time, lock, pause, after or limit"}
const FILTERS = ["status", "reason", "parent_id", "children", ...Object.keys(FIELDS)]
const SORTS = [["", "newest first"], ["oldest", "oldest first"], ["priority", "by priority"]]
const CHILDREN = [["", "as asked"], ["true", "with their files"]]

export function open(ctx) {
	const {query} = ctx
	const only = Object.fromEntries(FILTERS.filter(name => query[name]).map(name => [name, name === "children" || query[name]]))
	const jobs = jobList(ctx, "jobs", only, {parts: ["jobs"], what: "Job", refresh: () => jobs.page.hurry()})
	return {
		jobs,
		hear: (kind, data) => kind === "job" && jobs.hear(data),
		acts: {...jobs.acts, sort: ({value}) => filter({sort: value})},
		forms: {narrow: form => filter(filled(form, null))},
		view: () => h("div.wrap", head("Jobs", null, writeButtons()), h("section.pane", {label: "Jobs"},
			h("header", tabs("Status", STATUSES.map(status => [status, sentence(status || "all"), link(["jobs"], {...query, status, cursor: null})]), query.status ?? ""),
				h("span.sub", jobs.page.value && (known(jobs.list.total) ? plural(jobs.list.total, "job") : "more than 100,000 jobs")),
				h("span.end", field("sort", "Sort", query.sort, {act: "sort"}, SORTS))),
			filterForm(["jobs"], query, FIELDS, {reason: "reason", parent_id: "parent"}, field("children", "Show jobs", query.children, {}, CHILDREN)),
			jobs.view(() => (Object.keys(only).length ? noMatch("job") : nothingYet())))),
	}
}
