//! Another Rust library in the same program: its runtime must not clash with the one inside libdtl.a.

/// Allocates, formats and unwinds, so that the runtime is really used.
#[unsafe(no_mangle)]
pub extern "C" fn other_answer() -> i32 {
    let caught = std::panic::catch_unwind(|| {
        std::panic::set_hook(Box::new(|_| {}));
        panic!("{}", vec![1; 10].len());
    });
    if caught.is_err() { 42 } else { 0 }
}
