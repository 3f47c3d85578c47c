//! Sets the link properties that cargo has no setting for: the soname, and "never unload".
//! (An unloaded library would leave thread-local destructors and worker threads without code.)
//! And tells the sources whether this compiler knows AVX-512 (from 1.89 on; the least one is older).

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libdtl.so.0.2");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,relro,-z,now");
    println!("cargo:rustc-check-cfg=cfg(dtl_avx512)");
    if compiler_minor() >= Some(89) {
        println!("cargo:rustc-cfg=dtl_avx512");
    }
}

/// 95 of "rustc 1.95.0 (…)".
fn compiler_minor() -> Option<u32> {
    let compiler = std::env::var_os("RUSTC")?;
    let answer = std::process::Command::new(compiler).arg("--version").output().ok()?;
    String::from_utf8(answer.stdout).ok()?.strip_prefix("rustc 1.")?.split('.').next()?.parse().ok()
}
