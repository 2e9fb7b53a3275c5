import {get, post, remove} from "./api.js"
import {ask} from "./dialog.js"
import {field} from "./parts.js"

export const me = {scopes: [], tenants: [], auth: "none"}
export const mayWrite = () => me.scopes.includes("write")
export const mayPause = () => me.scopes.includes("admin") && me.tenants.includes("*")
export const manyTenants = () => me.tenants.includes("*") || me.tenants.length > 1
const projects = {}
export const tenantName = id => projects[id] ?? id

export async function readMe() {
	Object.assign(me, await get("/me"))
	for (const one of (await get("/projects")).projects) projects[one.tenant_id] = one.name
}

let asking = null

// Ask for a key until the server takes one. The key is not kept: the server answers with a cookie.
export function login() {
	asking ??= ask({
		title: "This server needs a key",
		words: "The key is sent once and exchanged for a session of this browser. It is not stored here.",
		body: field("key", "Key", "", {type: "password", required: true, autofocus: true}),
		yes: "Sign in",
		no: null,
		submit: form => post("/session", {key: new FormData(form).get("key")}),
	}).then(() => location.reload())
	return asking
}

export async function logout() {
	await remove("/session")
	location.reload()
}
