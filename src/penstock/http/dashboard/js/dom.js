// Elements as plain values, and a patch that changes only what differs: by key, else by place.
// A replaced element would lose its focus, its selection and the click about to land on it.
const SVG = "http://www.w3.org/2000/svg"
const PROPERTIES = new Set(["checked", "disabled", "value"])
const NAMES = {label: "aria-label", act: "data-act", current: "aria-current"}

// `h("td.right", {key: 1}, "text", child)`. `style` is set by CSSOM, as the CSP asks.
export function h(name, ...children) {
	const [tag, ...classes] = name.split(".")
	const first = children[0]
	const props = first && typeof first === "object" && !Array.isArray(first) && !first.tag ? {...children.shift()} : {}
	if (classes.length) props.class = `${classes.join(" ")} ${props.class ?? ""}`.trim()
	if (tag === "button") props.type ??= "button"
	if (tag === "svg") props[props.label ? "role" : "aria-hidden"] = props.label ? "img" : "true"
	return {tag, props, children: flat(children, [])}
}

function flat(children, into) {
	for (const child of children) {
		if (Array.isArray(child)) flat(child, into)
		else if (![null, undefined, true, false].includes(child)) into.push(child.tag ? child : String(child))
	}
	return into
}

export const patch = (parent, ...values) => reconcile(parent, flat(values, []), false)

function reconcile(parent, wanted, inSvg) {
	const keyed = new Map()
	const free = []
	for (const node of parent.childNodes) {
		const key = node.vnode?.props.key
		if (key === undefined) free.push(node)
		else keyed.set(String(key), node)
	}
	let next = 0
	const chosen = wanted.map(value => {
		const key = value.props?.key
		const node = key === undefined ? free[next++] : keyed.get(String(key))
		return node && node.vnode?.tag === value.tag ? node : null
	})
	const kept = new Set(chosen)
	for (const node of [...parent.childNodes]) if (!kept.has(node)) node.remove()
	let cursor = parent.firstChild
	wanted.forEach((value, index) => {
		const node = chosen[index] ?? create(value, inSvg)
		if (node === cursor) cursor = cursor.nextSibling
		else parent.insertBefore(node, cursor)
		update(node, value, inSvg)
	})
}

function create({tag}, inSvg) {
	if (!tag) return document.createTextNode("")
	const element = inSvg || tag === "svg" ? document.createElementNS(SVG, tag) : document.createElement(tag)
	element.vnode = {tag, props: {}}
	return element
}

function update(node, value, inSvg) {
	if (!value.tag) {
		if (node.data !== value) node.data = value
		return
	}
	const before = node.vnode.props
	node.vnode = value
	// Options come before the value of their select.
	reconcile(node, value.children, inSvg || value.tag === "svg")
	for (const name in {...before, ...value.props}) set(node, NAMES[name] ?? name, value.props[name], before[name])
}

function set(node, name, value, before) {
	if (name === "key") return
	if (name === "style") {
		for (const part in value) if (value[part] !== before?.[part]) node.style.setProperty(part, value[part])
	} else if (PROPERTIES.has(name)) {
		// What a person typed stays until the page itself wants another value.
		if (name !== "value") node[name] = Boolean(value)
		else if (value !== before) node.value = value ?? ""
	} else if (value !== before) {
		if ((value ?? false) === false) node.removeAttribute(name)
		else node.setAttribute(name, value === true ? "" : value)
	}
}
