//! Adds the folder of the linked library to the run path of the tests.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if let Ok(directory) = std::env::var("DEP_DTL_LIB_DIR") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{directory}");
    }
}
