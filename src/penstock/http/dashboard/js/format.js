import {h} from "./dom.js"

const UNKNOWN = "unknown"
export const known = value => value !== null && value !== undefined
const whole = new Intl.NumberFormat("en-US", {maximumFractionDigits: 0})
const two = value => String(value).padStart(2, "0")

export function count(value) {
	if (!known(value)) return UNKNOWN
	return value < 1e6 ? whole.format(value) : `${(Math.floor(value / 1e4) / 100).toFixed(2)} M`
}

export const num = value => h("span.num", {title: value >= 1e6 ? whole.format(value) : null}, count(value))

export const plural = (number, noun, many = `${noun}s`) => `${count(number)} ${number === 1 ? noun : many}`
export const sentence = text => text ? text[0].toUpperCase() + text.slice(1) : ""

export function perMinute(rate, unit = "") {
	if (!known(rate)) return UNKNOWN
	const minute = rate * 60
	const shown = minute > 0 && minute < 10 ? minute.toFixed(1).replace(/\.0$/, "") : whole.format(minute)
	return `${shown}${unit && ` ${unit}`}/min`
}

export function timeLeft(seconds) {
	if (!known(seconds)) return UNKNOWN
	if (seconds < 60) return "under 1 min"
	if (seconds < 3600) return `about ${Math.ceil(seconds / 60)} min`
	if (seconds < 172800) return `about ${Math.ceil(seconds / 3600)} h`
	return `about ${Math.ceil(seconds / 86400)} days`
}

const shown = new Map()
// The same words for at least five seconds, so that an estimate does not flicker.
export function steady(key, words) {
	const before = shown.get(key)
	if (before && before.words !== words && performance.now() - before.at < 5000) return before.words
	if (before?.words !== words) shown.set(key, {words, at: performance.now()})
	return words
}

export function duration(milliseconds) {
	if (!known(milliseconds)) return UNKNOWN
	const seconds = milliseconds / 1000
	if (seconds < 59.95) return `${seconds.toFixed(seconds < 0.1 ? 2 : 1)} s`
	const minutes = Math.floor(Math.round(seconds) / 60)
	if (minutes < 60) return `${minutes} min ${two(Math.round(seconds) % 60)} s`
	const hours = Math.floor(minutes / 60)
	return hours < 48 ? `${hours} h ${two(minutes % 60)} min` : `${Math.floor(hours / 24)} d ${two(hours % 24)} h`
}

export const clock = date => `${two(date.getHours())}:${two(date.getMinutes())}`
export const clockSeconds = date => `${clock(date)}:${two(date.getSeconds())}`
const isToday = date => date.toDateString() === new Date().toDateString()

function moment(date) {
	const age = (Date.now() - date) / 1000
	if (age >= -5 && age < 60) return `${Math.max(Math.floor(age), 0)} s ago`
	if (isToday(date)) return clock(date)
	const day = date.toLocaleDateString("en-GB", {day: "numeric", month: "short"})
	return `${day} ${date.getFullYear() === new Date().getFullYear() ? clock(date) : date.getFullYear()}`
}

export function time(iso, seconds = false) {
	if (!iso) return UNKNOWN
	const date = new Date(iso)
	const utc = date.toISOString()
	return h("time.num", {datetime: utc, title: `${utc.slice(0, 19).replace("T", " ")} UTC`},
		seconds && isToday(date) ? clockSeconds(date) : moment(date))
}

export function below(path, folder) {
	const start = folder && `${folder.replace(/\/$/, "")}/`
	return start && path?.startsWith(start) ? path.slice(start.length) : path
}

export const baseName = path => path.replace(/\/+$/, "").split("/").pop() || path
