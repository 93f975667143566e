#!/usr/bin/env bash
# Counts signs of unclear prose and dense code in the tree, and names the worst files.
#
#   scripts/prose.sh [--check] [--files N] [DIRECTORY]
#
# Prose: marks per 1,000 words, in Rust comments (lines that begin with //, /// or //!) and in Markdown, without code and
# identifiers.
# Code: `match` on a bool, `let (a, b) = (x, y)`, lines over 100 columns, tokens per line (a string is one token); per 100 lines
# of functions, blank lines (paragraphs), lines of comments, and closures; names of types that are one word, or that several
# files declare.
# --check exits with 1 if a figure is beyond its limit. DIRECTORY measures another tree (a crate's sources, for instance).
# The references are tokio, hyper, rustls, regex-automata, axum, reqwest and lettre, measured with this script; "told" and
# beginnings are ripgrep, rust-analyzer, linkerd2-proxy, oximeter, node_exporter and Alertmanager.
set -euo pipefail

check=0 files=10 directory=
while [ $# -gt 0 ]; do
	case $1 in
	--check) check=1 ;;
	--files) files=$2 && shift ;;
	-*) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
	*) directory=$1 ;;
	esac
	shift
done
cd "${directory:-$(dirname "$0")/..}"

list() { # The tree's Rust and Markdown files. CHANGELOG.md is a record, configuration.md is made from the comments.
	if [ -z "$directory" ]; then
		git ls-files --cached --others --exclude-standard '*.rs' '*.md' | grep -vxE 'CHANGELOG\.md|docs/configuration\.md'
	else
		find . -name target -prune -o -type f \( -name '*.rs' -o -name '*.md' \) -print
	fi
}

list | LC_ALL=C xargs -r -s 1000000 awk -v check="$check" -v worst="$files" '
function count(pattern, text) { return gsub(pattern, "&", text) }

# One line of prose. `first` says whether a comment or a paragraph begins here.
function prose(kind, text, first,    lower, found) {
	words[kind] += split(text, parts, /[^A-Za-z0-9\047_]+/) - 1
	lower = " " tolower(text) " "
	gsub(/[^a-z0-9\047]+/, "  ", lower)
	found = add(kind, "told", count(" (tells?|told|telling) ", lower))
	found += add(kind, "nobody", count(" (nobody|somebody|whoever|whom) ", lower))
	found += add(kind, "is none", count(" (is|are|was|were)  none ", lower) + count(" there  (is|are)  (no|none) ", lower))
	found += add(kind, "riddle", count(" (that  which|of  which|at  home|goes?  on|anew|such  as  it  is|is  over|that  there  (is|are)|as  it  (is|was|stands)) ", lower))
	if (first)
		found += add(kind, "start", text ~ /^[^A-Za-z]*(What|Who|Whose|Whom|Those|Of|Where its)[^A-Za-z]/)
	if (found) marks[FILENAME] += found
}
function add(kind, mark, n) { total[kind, mark] += n; return n }

# The text of a line without its comment, and with 0 for each string and character. A string may go over several lines:
# `string_end` is its end, or `\` for a string with escapes; the lines inside it are data, and give "".
function code_of(text,    code, found, at) {
	if (string_end != "") text = after_string(text)
	while (match(text, /(b?r#*|b|c)?"|\047([^\047\\]|\\[^\047]+|\\\047)\047|\/\//)) {
		found = substr(text, RSTART, RLENGTH)
		code = code substr(text, 1, RSTART - 1)
		text = substr(text, RSTART + RLENGTH)
		if (found == "//") return code
		code = code " 0 "
		if (found ~ /^\047/) continue
		string_end = "\\"
		if (sub(/^b?r/, "", found)) string_end = "\"" substr(found, 1, length(found) - 1)
		text = after_string(text)
	}
	return code text
}
# The text after the end of the string that it begins with; "" if the string goes on in the next line.
function after_string(text,    at, size) {
	size = length(string_end)
	if (string_end == "\\") at = match(text, /^([^"\\]|\\.)*"/) ? RLENGTH : 0
	else at = (at = index(text, string_end)) ? at + size - 1 : 0
	if (!at) return ""
	string_end = ""
	return substr(text, at + 1)
}
function count_code(text,    n) {
	n = tokens(text)
	code++
	code_tokens += n
	surplus[FILENAME] += n - most_tokens
}
function tokens(text,    n) {
	n = gsub(/[A-Za-z0-9_]+/, " ", text)
	n += gsub(/::|->|=>|==|!=|<=|>=|&&|\|\||\.\.=|\.\.|[+*\/%^|&-]=/, " ", text)
	return n + gsub(/[^ \t]/, "", text)
}

# Lines inside of functions, by the indentation that rustfmt gives. A function within another belongs to it.
function in_function(line,    indent) {
	match(line, /^ */)
	indent = RLENGTH
	if (body_indent != "") {
		if (indent == body_indent && line ~ /^ *}/) { body_indent = ""; return }
		body_lines++
		if (line !~ /[^ ]/) body_blanks++
		else if (line ~ /^ *\/\//) body_comments++
		return
	}
	if (line ~ /^ *(pub(\([a-z: ]+\))? )?((const|async|unsafe|extern "C") )*fn /) head_indent = indent
	if (head_indent == "" || indent != head_indent) return
	if (line ~ /\{$/) body_indent = head_indent
	if (line ~ /[;{}]$/) head_indent = ""
}
function note_type(line,    name) {
	if (!match(line, /^ *(pub(\([a-z: ]+\))? )?(struct|enum|trait|type|union) [A-Z][A-Za-z0-9]*/)) return
	name = substr(line, RSTART, RLENGTH)
	sub(/^.* /, "", name)
	# An associated type of a trait is no declaration of its own.
	if (line ~ /^ +type /) return
	types++
	one_word += name !~ /[a-z0-9][A-Z]/
	if (!((name, FILENAME) in declared)) { declared[name, FILENAME]; files_of[name]++ }
}

BEGIN { most_tokens = 7.88 }

FNR == 1 { fenced = in_comment = bool_arm = 0; string_end = body_indent = head_indent = ""; markdown = FILENAME ~ /\.md$/ }

markdown {
	if ($0 ~ /^ *(```|~~~)/) { fenced = !fenced; paragraph = 0; next }
	if (fenced) next
	if ($0 !~ /[^ ]/) { paragraph = 0; next }
	gsub(/`[^`]*`|\]\([^)]*\)|https?:[^ )]*|[A-Za-z0-9]*_[A-Za-z0-9_]*/, " ")
	# A question may begin with What or Who.
	prose("docs", $0, (!paragraph || $0 ~ /^ *([-*#]|[0-9]+\.|\|) /) && !/\?/)
	paragraph = 1
	next
}

{
	lines++
	if (string_end == "") { in_function($0); note_type($0) }
	if (length($0) > 100) {
		wide = $0
		gsub(/[\200-\277]/, "", wide)
		if (length(wide) > 100) { long++; dense[FILENAME]++ }
	}
}

string_end != "" {
	text = code_of($0)
	if (text ~ /[^ \t]/) count_code(text)
	next
}

/^[ \t]*\/\// {
	text = $0
	sub(/^[ \t]*\/\/[\/!]?/, "", text)
	if (text ~ /^ *```/) { fenced = !fenced; next }
	if (fenced) next
	empty = text !~ /[^ ]/
	if (!empty) {
		gsub(/`[^`]*`|https?:[^ )]*|[A-Za-z0-9]*_[A-Za-z0-9_]*/, " ", text)
		prose("comments", text, !in_comment)
	}
	in_comment = !empty
	next
}

!/[^ \t]/ { in_comment = 0; next }

{
	in_comment = fenced = 0
	text = code_of($0)
	closures += count("(\\(|, |= |> |\\{ |return )(move )?\\|[^|]*\\| ?[^ |=]", text)
	count_code(text)
	if ($0 ~ /^ *let \(.*\) = \(/) { tuples++; dense[FILENAME]++ }
	if ($0 ~ /(^|[ {])(true|false) (if [^=]*)?=>/) {
		# The second arm of the same match stands at the same indent with nothing less indented between.
		match($0, /^ */)
		if (!bool_arm || RLENGTH + 1 != bool_arm) { bools++; dense[FILENAME]++ }
		bool_arm = RLENGTH + 1
	} else if (bool_arm) {
		match($0, /^ */)
		if (RLENGTH + 1 < bool_arm) bool_arm = 0
	}
}

# Prints one figure beside the range of the references; their upper end is the limit, and `least` where less is worse.
function figure(label, value, n, range, least,    ends, bad) {
	split(range, ends, "-")
	bad = value > ends[2] + 0 || (least && value < least)
	above += bad
	printf "%-64s %9.2f %8d   %-10s %s\n", label, value, n, range, (!bad ? "" : (value > ends[2] + 0) ? "above" : "below")
}
function rates(kind, label,    k) {
	k = words[kind] ? words[kind] / 1000 : 1
	label = label " per 1,000 words: "
	figure(label "told, tell(s)", total[kind, "told"] / k, total[kind, "told"], "0.03-0.09")
	figure(label "begins with What, Who, Those, Of", total[kind, "start"] / k, total[kind, "start"], "0-0.07")
	figure(label "nobody, somebody, whoever", total[kind, "nobody"] / k, total[kind, "nobody"], "0-0.10")
	figure(label "is none, there is no", total[kind, "is none"] / k, total[kind, "is none"], "0.06-0.65")
	figure(label "that which, goes on, anew, ...", total[kind, "riddle"] / k, total[kind, "riddle"], "0.06-0.25")
}
function list_worst(title, counts,    file, i, best) {
	printf "\n%s\n", title
	for (i = 0; i < worst; i++) {
		best = ""
		for (file in counts)
			if (best == "" || counts[file] > counts[best] || (counts[file] == counts[best] && file < best)) best = file
		if (best == "" || counts[best] <= 0) break
		printf "%6d  %s\n", counts[best], best
		delete counts[best]
	}
}

END {
	printf "%-64s %9s %8s   %s\n", "", "measured", "count", "references"
	rates("comments", "comments")
	rates("docs", "docs")
	lines += !lines; code += !code
	figure("code per 1,000 lines: match on a bool", bools * 1000 / code, bools, "0-0.20")
	figure("code per 1,000 lines: let (a, b) = (x, y)", tuples * 1000 / code, tuples, "0-0.70")
	figure("code: percent of lines over 100 columns", long * 100 / lines, long, "0.01-1.00")
	figure("code: tokens per line", code_tokens / code, code_tokens, "6.78-" most_tokens)
	body_lines += !body_lines; types += !types
	for (name in files_of) shared += files_of[name] > 3
	figure("code per 100 lines of functions: blank lines", body_blanks * 100 / body_lines, body_blanks, "2.10-9", 2)
	figure("code per 100 lines of functions: comments", body_comments * 100 / body_lines, body_comments, "3.00-9", 3)
	figure("code per 100 lines: closures", closures * 100 / code, closures, "1.20-3.5")
	figure("types: percent of one word", one_word * 100 / types, one_word, "8-35")
	figure("types: names that more than three files declare", shared, shared, "0-0")
	printf "%d words of comments, %d of documentation, %d lines of code\n", words["comments"], words["docs"], code
	list_worst("Most marks in prose", marks)
	list_worst("Most marks in code", dense)
	for (name in files_of) if (files_of[name] <= 3) delete files_of[name]
	list_worst("Names of types that most files declare", files_of)
	list_worst("Most tokens above " most_tokens " per line", surplus)
	if (check && above) {
		printf "\nprose.sh: %d figures are beyond their limits\n", above
		exit 1
	}
}' || exit 1
