#!/bin/bash
# Builds the packages of a release into target/dist: .deb and .rpm of server and exporter, their checksums and a list of
# all crates (SPDX). Needs programs that are built already: BIN=target/release scripts/dist.sh
#
# For another processor: BIN=target/aarch64-unknown-linux-gnu/release NATIVE=target/release scripts/dist.sh. The programs of
# NATIVE run here and write man pages and completions. Without rpmbuild (Debian: rpm) no .rpm is built; RPM=1 makes that an
# error. QUICK=1 compresses little, for tests. An exporter without a C library becomes takt-exporter-static, and an archive.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${BIN:-target/release}
native=${NATIVE:-$bin}
out=${OUT:-target/dist}
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
if [ "${QUICK:-}" = 1 ]; then
    deb_compression="-Zgzip -z1" rpm_compression=w1.gzdio
else
    # Debian before 12 and RHEL 8 read xz.
    deb_compression=-Zxz rpm_compression=w6.xzdio
fi
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
    readelf --wide --version-info "$@" | grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -1 | cut -d_ -f2
}

# strip_of FILE: removes debug information, with the tools of the program's processor.
strip_of() {
    local tool=strip
    [ "$machine" = "$(uname -m)" ] || tool=$machine-linux-gnu-strip
    if command -v "$tool" >/dev/null; then
        "$tool" "$1"
    elif readelf --wide --section-headers "$1" | grep -q '\.symtab'; then
        echo "dist.sh: no $tool; $1 keeps its symbols" >&2
    fi
}

# root NAME: a folder with the files that each package has, besides the program.
root() {
    local to=$out/$1 program=${1%-static}
    rm -rf "$to"
    mkdir -p "$to"/usr/{bin,lib/systemd/system} "$to"/usr/share/{doc/"$1",man/man1,bash-completion/completions} \
        "$to"/usr/share/{zsh/vendor-completions,fish/vendor_completions.d}
    sed 's|/usr/local/|/usr/|' "packaging/$program.service" >"$to/usr/lib/systemd/system/$program.service"
    "$native/takt" completions bash --program "$program" >"$to/usr/share/bash-completion/completions/$program"
    "$native/takt" completions zsh --program "$program" >"$to/usr/share/zsh/vendor-completions/_$program"
    "$native/takt" completions fish --program "$program" >"$to/usr/share/fish/vendor_completions.d/$program.fish"
    printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: takt\n\nFiles: *\nCopyright: 2026 the Takt authors\nLicense: Apache-2.0\n On Debian systems: /usr/share/common-licenses/Apache-2.0\n' \
        >"$to/usr/share/doc/$1/copyright"
    printf 'takt (%s) stable; urgency=medium\n\n  * See https://keepachangelog.com and CHANGELOG.md.\n\n -- Takt <takt@localhost>  %s\n' \
        "$version" "$(date -uRd "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$to/usr/share/doc/$1/changelog.gz"
}

# deb NAME RELATIONS SUMMARY DESCRIPTION
deb() {
    local size script
    size=$(du -sk "$out/$1" | cut -f1)
    mkdir "$out/$1/DEBIAN"
    for script in postinst prerm postrm; do
        install -m 755 "packaging/debian/${1%-static}.$script" "$out/$1/DEBIAN/$script"
    done
    cat >"$out/$1/DEBIAN/control" <<EOF
Package: $1
Version: $version
Architecture: $arch
Maintainer: Takt <takt@localhost>
Installed-Size: $size
$2
Section: admin
Priority: optional
Description: $3
$(fold -sw 78 <<<"$4" | sed 's/^/ /; s/ *$//')
EOF
    find "$out/$1" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group $deb_compression --build "$out/$1" "$out/${1}_${version}_$arch.deb"
    rm -r "$out/$1/DEBIAN"
}

# rpm_of NAME RELATIONS SUMMARY DESCRIPTION. The requirements are named here, since the tools of this machine would find
# the names of its own distribution.
rpm_of() {
    mkdir -p "$out/$1.rpmbuild"
    # Fedora and RHEL look for zsh's completions elsewhere.
    mv "$out/$1/usr/share/zsh/vendor-completions" "$out/$1/usr/share/zsh/site-functions"
    cat >"$out/$1.rpmbuild/$1.spec" <<EOF
Name: $1
Version: $version
Release: 1
Summary: $3
License: Apache-2.0
AutoReqProv: no
$2
%description
$4
%install
cp -a $(realpath "$out/$1")/. %{buildroot}
%files
$(cd "$out/$1" && find . -type d -name 'takt*' -printf '%%dir "/%P"\n' | sort)
$(cd "$out/$1" && find . \( -type f -o -type l \) -printf '"/%P"\n' | sort)
%post
$(cat "packaging/rpm/${1%-static}.post")
%preun
$(cat "packaging/rpm/${1%-static}.preun")
%postun
$(cat "packaging/rpm/${1%-static}.postun")
EOF
    rpmbuild -bb --quiet --target "$machine-linux" --define "_topdir $(realpath "$out/$1.rpmbuild")" \
        --define "_rpmdir $(realpath "$out")" --define '_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm' \
        --define 'debug_package %{nil}' --define '__os_install_post %{nil}' --define '_build_id_links none' \
        --define "_binary_payload $rpm_compression" --define '_buildhost localhost' --define 'use_source_date_epoch_as_buildtime 1' \
        --define 'clamp_mtime_to_source_date_epoch 1' "$out/$1.rpmbuild/$1.spec"
    rm -rf "$out/$1.rpmbuild"
}

# pack NAME "RELATIONS IN DEBIAN" "RELATIONS IN RPM" SUMMARY DESCRIPTION
pack() {
    deb "$1" "$2" "$4" "$5"
    if command -v rpmbuild >/dev/null; then
        rpm_of "$1" "$3" "$4" "$5"
    elif [ "${RPM:-}" = 1 ]; then
        echo "dist.sh: no rpmbuild" >&2
        exit 1
    fi
    rm -rf "${out:?}/$1"
}

mkdir -p "$out"
"$native/takt" man "$out/man" >/dev/null
gzip -9n -f "$out"/man/*.1

needed=$(glibc "$bin/takt-exporter") || true
name=takt-exporter
summary="exporter of a node of a GPU cluster"
about="Publishes the state of the kernel, GPUs, links, NFS mounts and jobs for Takt and Prometheus."
debian="Depends: libc6 (>= $needed), libgcc-s1"
rpm="Requires: glibc >= $needed, libgcc"
if [ -z "$needed" ]; then
    name=takt-exporter-static
    summary="$summary, without a C library"
    about="$about It runs on every Linux, and cannot load the libraries of GPU drivers."
    debian=$'Provides: takt-exporter\nConflicts: takt-exporter\nReplaces: takt-exporter'
    rpm=$'Provides: takt-exporter\nConflicts: takt-exporter'
fi
root $name
install -m 755 "$bin/takt-exporter" "$out/$name/usr/bin/takt-exporter"
strip_of "$out/$name/usr/bin/takt-exporter"
mv "$out"/man/takt-exporter*.1.gz "$out/$name/usr/share/man/man1"
if [ -z "$needed" ]; then
    tar --create --gzip --file "$out/$name-$version-linux-$arch.tar.gz" --sort=name --owner=0 --group=0 --numeric-owner \
        --mtime="@$SOURCE_DATE_EPOCH" --transform='s|.*/||' \
        "$out/$name/usr/bin/takt-exporter" packaging/takt-exporter.service LICENSE
fi
pack $name "$debian" "$rpm" "$summary" "$about"

# Without the library of DuckDB there is only the exporter: for processors where DuckDB cannot be had.
if [ -e "$bin/takt" ]; then
    root takt
    mkdir -p "$out/takt/usr/lib/takt" "$out/takt/usr/lib/sysusers.d"
    install -m 755 "$bin/takt" "$out/takt/usr/lib/takt/takt"
    strip_of "$out/takt/usr/lib/takt/takt"
    libraries=()
    if [ -e "$bin/libduckdb.so" ]; then
        install -m 644 "$bin/libduckdb.so" "$out/takt/usr/lib/takt/libduckdb.so"
        libraries=("$bin/libduckdb.so")
    fi
    ln -s ../lib/takt/takt "$out/takt/usr/bin/takt"
    mv "$out"/man/*.1.gz "$out/takt/usr/share/man/man1"
    install -m 644 packaging/takt.sysusers "$out/takt/usr/lib/sysusers.d/takt.conf"
    install -m 644 README.md docs/*.md docs/takt.example.toml "$out/takt/usr/share/doc/takt"
    cp -r dashboards/grafana dashboards/provisioning "$out/takt/usr/share/doc/takt"
    needed=$(glibc "$bin/takt" "${libraries[@]}")
    pack takt "Depends: libc6 (>= $needed), libgcc-s1, libstdc++6, systemd" \
        "Requires: glibc >= $needed, libgcc, libstdc++, systemd" \
        "monitoring and accounting of a GPU research cluster" \
        "Reads exporters and Slurm, stores samples and job records, sends alerts and reports, serves pages and queries."
fi
rm -rf "$out/man"

# The crates that are linked, for scanners of vulnerabilities.
cargo tree --locked -p takt -p takt-exporter --no-default-features --features takt/s3 -e normal --prefix none --format '{p}|{l}|{r}' |
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
(cd "$out" && find . -name '*.deb' -o -name '*.rpm' -o -name '*.tar.gz' -o -name '*.spdx.json' | sort | xargs sha256sum >SHA256SUMS)
ls -l "$out"
