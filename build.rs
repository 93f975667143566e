//! Lets the programs find the prebuilt `libduckdb.so` beside them: in their own folder (`target/release`, an
//! installation) or one above it (`target/release/deps`, where cargo puts test programs).
//!
//! It serves `takt` and `takt-collector`. A dependency's build script cannot do this for us: cargo passes `rustc-link-arg` on to no dependent.

fn main() {
    println!("cargo:rerun-if-env-changed=DUCKDB_LIB_DIR");
    if std::env::var_os("CARGO_FEATURE_BUNDLED").is_none() {
        println!("cargo:rustc-link-arg=-Wl,-rpath,$ORIGIN:$ORIGIN/..");
    }
}
