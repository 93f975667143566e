#!/usr/bin/env bash
# Makes the certificates of these tests: an authority, a server that is called takt.test, a client. Good for a century.
set -euo pipefail
cd "$(dirname "$0")"
key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1.key"; }
signed() {
	key "$1"
	openssl req -new -key "$1.key" -subj "/CN=$1" -out "$1.csr"
	openssl x509 -req -in "$1.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days 36500 -sha256 -extfile <(printf '%s' "$2") -out "$1.pem"
	rm "$1.csr"
}
key ca
openssl req -x509 -new -key ca.key -subj "/CN=takt test authority" -days 36500 -sha256 -out ca.pem \
	-addext basicConstraints=critical,CA:TRUE
signed server "subjectAltName=DNS:takt.test"
signed client "extendedKeyUsage=clientAuth"
rm -f ca.key ca.srl
