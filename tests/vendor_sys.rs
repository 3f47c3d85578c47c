//! Compares the declarations of vendors' headers (src/backend/*/*_sys.rs) with the headers:
//! tools/vendor_sys.py generates them again and compares. It prints what it skips if bindgen or a
//! header is not installed. NVIDIA's headers are part of CUDA, or are installed by
//! tests/gpu_wheels.sh; DTL_TEST_CUDA_INCLUDE names their folder.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking and speaks to its reader"
)]

use std::path::Path;
use std::process::Command;

const TOP: &str = env!("CARGO_MANIFEST_DIR");

/// Runs `tools/vendor_sys.py --check` on a tree. Returns whether it succeeds, and its output;
/// `None` without Python.
fn check(top: &Path) -> Option<(bool, String)> {
    let script = Path::new(TOP).join("tools/vendor_sys.py");
    let output = Command::new("python3").arg(script).arg("--check").arg(top).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    Some((output.status.success(), text.into_owned()))
}

#[test]
fn declarations_are_those_of_the_headers() {
    let Some((is_same, text)) = check(Path::new(TOP)) else {
        println!("skipped: no python3");
        return;
    };
    println!("{text}");
    assert!(is_same, "{text}");
}

#[test]
fn a_wrong_declaration_is_found() {
    let top = Path::new(env!("CARGO_TARGET_TMPDIR")).join("vendor_sys");
    let folder = top.join("src/backend/opencl");
    std::fs::create_dir_all(&folder).unwrap();
    for entry in std::fs::read_dir(Path::new(TOP).join("src/backend/opencl")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let text = text.replace("CL_QUEUE_CONTEXT: u32 = 4240", "CL_QUEUE_CONTEXT: u32 = 4241");
        std::fs::write(folder.join(path.file_name().unwrap()), text).unwrap();
    }
    let Some((is_same, text)) = check(&top) else { return };
    assert!(!is_same || text.contains("skipped: "), "{text}");
}

#[test]
fn the_magic_number_of_nccl_is_that_of_the_header() {
    let folder = std::env::var("DTL_TEST_CUDA_INCLUDE");
    let folder = folder.unwrap_or_else(|_| format!("{TOP}/build/wheels/nvidia/nccl/include"));
    match std::fs::read_to_string(Path::new(&folder).join("nccl.h")) {
        Ok(text) => assert!(text.contains("0xcafebeef,           /* magic */"), "ncclConfig_t"),
        Err(_) => println!("skipped: no nccl.h (tests/gpu_wheels.sh fetches it)"),
    }
}
