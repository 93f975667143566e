#!/usr/bin/env bash
# Checks the links of all Markdown files: a file that a link names exists, and has the heading that its anchor names. Code spans
# that are paths (`crates/store/src/select.rs`), from the root or from the file's folder, must exist too, except in records:
# CHANGELOG.md and notes of fixtures.
#
# Addresses of other sites are not asked. Paths with a placeholder in capitals (`exporter/src/collectors/NAME.rs`), with `*`
# or with `{` are left out.
set -euo pipefail
cd "$(dirname "$0")/.."

git ls-files --cached --others --exclude-standard '*.md' | while read -r file; do
	if [ -e "$file" ]; then echo "$file"; fi
done | LC_ALL=C xargs -r -s 1000000 awk '
# The anchor of a heading, as GitHub and mdBook make it.
function anchor(text) {
	gsub(/\]\([^)]*\)/, "", text)
	text = tolower(text)
	gsub(/…|–|—|’|‘|“|”|·|→|×|≥|≤/, "", text)
	gsub(/[^a-z0-9_ \200-\377-]/, "", text)
	gsub(/ /, "-", text)
	return text
}
# The path that a link of a file means, without `.` and `..`.
function resolved(file, link,    parts, n, i, path, depth) {
	if (sub(/\/[^\/]*$/, "/", file)) link = file link
	n = split(link, parts, "/")
	depth = 0
	for (i = 1; i <= n; i++) {
		if (parts[i] == "" || parts[i] == ".") continue
		if (parts[i] == "..") depth--
		else path[++depth] = parts[i]
	}
	link = path[1]
	for (i = 2; i <= depth; i++) link = link "/" path[i]
	return link
}
function exists(path) {
	if (!(path in known)) known[path] = system("test -e \"" path "\"") == 0
	return known[path]
}
function wrong(text) { print text; bad = 1 }

FNR == 1 { fenced = 0 }
/^ *(```|~~~)/ { fenced = !fenced; next }
fenced { next }

/^#+ / {
	name = $0
	sub(/^#+ +/, "", name)
	name = anchor(name)
	key = FILENAME "#" name
	if (key in anchors) key = key "-" anchors[key]++
	anchors[key] = 1
}

{
	line = $0
	# Code spans may hold brackets, so links are looked for without them.
	while (match(line, /`[^`]*`/)) {
		span = substr(line, RSTART + 1, RLENGTH - 2)
		line = substr(line, 1, RSTART - 1) substr(line, RSTART + RLENGTH)
		if (span ~ /^(crates|exporter|collector|alerts|dashboards|src|tests|scripts|packaging|bench|docs)\/[a-zA-Z0-9_.\/-]+$/ &&
			span !~ /[A-Z][A-Z]/ && FILENAME !~ /^CHANGELOG\.md$|\/fixtures\//) {
			paths[++path_count] = span
			path_file[path_count] = FILENAME
			path_at[path_count] = FILENAME ":" FNR
		}
	}
	while (match(line, /\]\([^)]*\)/)) {
		link = substr(line, RSTART + 2, RLENGTH - 3)
		line = substr(line, RSTART + RLENGTH)
		if (link ~ /^[a-z]+:/) continue
		links[++link_count] = link
		link_file[link_count] = FILENAME
		link_at[link_count] = FILENAME ":" FNR
	}
}

END {
	for (i = 1; i <= link_count; i++) {
		at = index(links[i], "#")
		path = at ? substr(links[i], 1, at - 1) : links[i]
		path = path == "" ? link_file[i] : resolved(link_file[i], path)
		if (!exists(path)) wrong(link_at[i] ": no file " path)
		else if (at && path ~ /\.md$/ && !(path substr(links[i], at) in anchors)) wrong(link_at[i] ": no heading " path substr(links[i], at))
	}
	for (i = 1; i <= path_count; i++) {
		path = paths[i]
		sub(/\/$/, "", path)
		if (!exists(path) && !exists(resolved(path_file[i], path))) wrong(path_at[i] ": no file " paths[i])
	}
	exit bad
}' >&2 || {
	echo "check-links: see above" >&2
	exit 1
}
