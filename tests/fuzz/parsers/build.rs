//! Compiles plugin tcp with the coverage that libFuzzer uses, and what `run.sh` adds (sanitizers).

fn main() {
    let plugin = "../../../examples-plugins/tcp";
    println!("cargo:rerun-if-changed={plugin}");
    println!("cargo:rerun-if-changed=src/targets/tcp.c");
    println!("cargo:rustc-check-cfg=cfg(dtl_avx512)");
    let mut build = cc::Build::new();
    build.compiler("clang").include("../../../include").opt_level(1).debug(true);
    build.flag("-fsanitize-coverage=inline-8bit-counters,pc-table,trace-cmp");
    if std::env::var("CARGO_CFG_SANITIZE").is_ok_and(|kinds| kinds.contains("address")) {
        build.flag("-fsanitize=address");
    }
    for file in ["match.c", "net.c", "progress.c"] {
        build.file(format!("{plugin}/{file}"));
    }
    build.file("src/targets/tcp.c").compile("tcp");
}
