//! Sets the link properties that cargo has no setting for: the soname, and "never unload".
//! (An unloaded library would leave thread-local destructors and worker threads without code.)

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libdtl.so.0");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,relro,-z,now");
}
