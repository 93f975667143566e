#!/usr/bin/env bash
# Checks the crates of the build against deny.toml: fails on a banned crate or a licence that is not allowed.
set -euo pipefail
cd "$(dirname "$0")/.."

list() { # SECTION KEY: the quoted words of a list in deny.toml
	sed -n "/^\[$1\]/,/^\[/p" deny.toml | sed -n "/^$2 = \[/,/^\]/p" | sed 's/#.*//' |
		if [ "$1" = bans ]; then sed -n 's/.*crate = "\([^"]*\)".*/\1/p'; else sed -n 's/^ *"\([^"]*\)".*/\1/p'; fi
}

bad=0
crates=$(cargo tree --workspace --no-default-features --features takt/s3 --edges normal,build --prefix none --format '{p}	{l}' --locked |
	sed 's/ (\*)$//' | grep . | sort -u)
while read -r banned; do
	if found=$(grep -E "^$banned v" <<<"$crates"); then
		echo "check-bans: $found is banned (deny.toml says why); cargo tree -i $banned shows who wants it" >&2
		bad=1
	fi
done < <(list bans deny)

allowed=$(list licenses allow)
while IFS=$'\t' read -r crate licence; do
	# "A OR B" needs one that is allowed, "A AND B" every one; parentheses group, "/" is an old spelling of OR.
	ok=1
	while read -r clause; do
		any=0
		while read -r one; do grep -qxF "$one" <<<"$allowed" && any=1; done < <(sed 's/ OR /\n/g' <<<"$clause")
		[ "$any" = 1 ] || ok=0
	done < <(tr -d '()' <<<"${licence//\// OR }" | sed 's/ AND /\n/g')
	if [ "$ok" = 0 ]; then
		echo "check-bans: $crate has the licence '$licence', which deny.toml does not allow" >&2
		bad=1
	fi
done < <(cut -f1,2 <<<"$crates")
exit $bad
