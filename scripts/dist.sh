#!/bin/bash
# Builds the packages of a release into target/dist: .deb of server and exporter, their checksums and a list of all
# crates (SPDX). Needs programs that are built already: BIN=target/release scripts/dist.sh
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${BIN:-target/release}
out=${OUT:-target/dist}
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
# The date of the last commit, so that two builds of one commit are equal.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
umask 022

case $(od -An -tx1 -j18 -N1 "$bin/takt-exporter" | tr -d ' ') in
    3e) arch=amd64 machine=x86_64 ;;
    b7) arch=arm64 machine=aarch64 ;;
    *) echo "dist.sh: unknown processor of $bin/takt-exporter" >&2; exit 1 ;;
esac

# The newest version of the C library whose symbols a program uses.
glibc() {
    objdump -T "$@" | grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -1 | cut -d_ -f2
}

# root NAME: an empty folder for the files of a package, with the folders that every package has.
root() {
    rm -rf "$out/$1"
    mkdir -p "$out/$1/DEBIAN" "$out/$1/usr/bin" "$out/$1/usr/lib/systemd/system" "$out/$1/usr/share/doc/$1"
    sed 's|/usr/local/|/usr/|' "packaging/$1.service" >"$out/$1/usr/lib/systemd/system/$1.service"
    printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: takt\n\nFiles: *\nCopyright: the Takt authors\nLicense: Apache-2.0\n On Debian systems: /usr/share/common-licenses/Apache-2.0\n' \
        >"$out/$1/usr/share/doc/$1/copyright"
    printf 'takt (%s) stable; urgency=medium\n\n  * See https://keepachangelog.com and CHANGELOG.md.\n\n -- Takt <takt@localhost>  %s\n' \
        "$version" "$(date -uRd "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$out/$1/usr/share/doc/$1/changelog.gz"
    install -m 755 "packaging/debian/$1.postinst" "$out/$1/DEBIAN/postinst"
    install -m 755 "packaging/debian/$1.prerm" "$out/$1/DEBIAN/prerm"
}

# pack NAME DEPENDS SUMMARY DESCRIPTION
pack() {
    local size
    size=$(du -sk --exclude=DEBIAN "$out/$1" | cut -f1)
    cat >"$out/$1/DEBIAN/control" <<EOF
Package: $1
Version: $version
Architecture: $arch
Maintainer: Takt <takt@localhost>
Installed-Size: $size
Depends: $2
Section: admin
Priority: optional
Description: $3
 $4
EOF
    find "$out/$1" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group -Zxz --build "$out/$1" "$out/${1}_${version}_$arch.deb"
    rm -rf "${out:?}/$1"
}

mkdir -p "$out"
root takt-exporter
install -s -m 755 "$bin/takt-exporter" "$out/takt-exporter/usr/bin/takt-exporter"
pack takt-exporter "libc6 (>= $(glibc "$bin/takt-exporter")), libgcc-s1" \
    "exporter of a node of a GPU cluster" \
    "Publishes the state of the kernel, GPUs, links, NFS mounts and jobs for Takt and Prometheus."

root takt
mkdir -p "$out/takt/usr/lib/takt" "$out/takt/usr/lib/sysusers.d"
install -s -m 755 "$bin/takt" "$out/takt/usr/lib/takt/takt"
libraries=()
if [ -e "$bin/libduckdb.so" ]; then
    install -m 644 "$bin/libduckdb.so" "$out/takt/usr/lib/takt/libduckdb.so"
    libraries=("$bin/libduckdb.so")
fi
ln -s ../lib/takt/takt "$out/takt/usr/bin/takt"
install -m 644 packaging/takt.sysusers "$out/takt/usr/lib/sysusers.d/takt.conf"
install -m 644 README.md docs/*.md docs/takt.example.toml "$out/takt/usr/share/doc/takt"
cp -r dashboards/grafana dashboards/provisioning "$out/takt/usr/share/doc/takt"
pack takt "libc6 (>= $(glibc "$bin/takt" "${libraries[@]}")), libgcc-s1, libstdc++6, systemd" \
    "monitoring and accounting of a GPU research cluster" \
    "Reads exporters and Slurm, stores samples and job records, sends alerts and reports, serves pages and queries."

# The crates that are linked, for scanners of vulnerabilities.
cargo tree --locked -p takt -p takt-exporter --no-default-features -e normal --prefix none --format '{p}|{l}|{r}' |
    python3 -c '
import json, sys
version, date = sys.argv[1:]
rows = sorted({line.strip().removesuffix(" (*)") for line in sys.stdin if line.strip()})
def package(number, row):
    name, license, repository = row.split("|")
    name, of = name.split()[:2]
    of = of.lstrip("v")
    return {
        "SPDXID": f"SPDXRef-{number}", "name": name, "versionInfo": of,
        "downloadLocation": repository or "NOASSERTION", "licenseDeclared": license or "NOASSERTION",
        "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                          "referenceLocator": f"pkg:cargo/{name}@{of}"}],
    }
print(json.dumps({
    "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"takt-{version}",
    "documentNamespace": f"https://spdx.org/spdxdocs/takt-{version}",
    "creationInfo": {"created": date, "creators": ["Tool: scripts/dist.sh"]},
    "packages": [package(number, row) for number, row in enumerate(rows)],
}, indent=1))' "$version" "$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)" >"$out/takt-$version.spdx.json"
(cd "$out" && sha256sum ./*.deb ./*.spdx.json >SHA256SUMS)
ls -l "$out"
