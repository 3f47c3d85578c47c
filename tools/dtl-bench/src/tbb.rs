//! Parallel loops with oneTBB, for comparison with the parallel loops of the library. The interface
//! of oneTBB consists of C++ templates, so this module compiles a few lines of C++ with the
//! compiler and headers of this machine, and loads the result.

use crate::out::Outcome;
use dtl::tooling::os::SharedObject;
use std::ffi::{c_int, c_void};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

const SOURCE: &str = include_str!("tbb.cpp");

/// Loop body: function that a parallel loop calls with the begin and the end of a range of
/// iterations.
pub(crate) type Body = extern "C" fn(u64, u64, *mut c_void);
type Loop = unsafe extern "C" fn(u64, c_int, Body, *mut c_void);

/// Function that runs a parallel loop with oneTBB. It is in a shared object that this module has
/// compiled and loaded.
#[derive(Clone, Copy)]
pub(crate) struct Tbb(Loop);

impl Tbb {
    /// Compiles and loads the function that runs a parallel loop.
    pub(crate) fn load() -> Outcome<Tbb> {
        let folder = std::env::temp_dir().join(format!("dtl-bench-tbb-{}", std::process::id()));
        let within = |error: std::io::Error| format!("{}: {error}", folder.display());
        fs::create_dir(&folder).map_err(within)?;
        let loaded =
            fs::write(folder.join("tbb.cpp"), SOURCE).map_err(within).and_then(|()| load(&folder));
        fs::remove_dir_all(&folder).map_err(within)?;
        loaded
    }

    /// Runs a parallel loop over the iterations from 0 to `end` (exclusive). The value of `threads`
    /// in the first call is the number of threads for all calls.
    #[inline]
    pub(crate) fn run(self, end: u64, threads: u32, body: Body, user: *mut c_void) {
        // SAFETY: the caller's `user` outlives the call, which returns when all ranges are done.
        unsafe { (self.0)(end, threads as c_int, body, user) };
    }
}

fn load(folder: &Path) -> Outcome<Tbb> {
    let flags = ["-std=c++17", "-O2", "-shared", "-fPIC", "tbb.cpp", "-o", "tbb.so", "-ltbb"];
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    let mut command = Command::new(&compiler);
    let output = command.args(flags).current_dir(folder).stdin(Stdio::null()).output();
    let output = output
        .map_err(|error| format!("--vs tbb: {compiler}: {error}; a C++ compiler is needed"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let first = said.lines().find(|line| line.contains("error")).unwrap_or_default();
        return Err(format!(
            "--vs tbb: oneTBB with its headers (tbb/parallel_for.h) is needed: {first}"
        ));
    }
    // SAFETY: the library that was just compiled, and TBB's own; their constructors start nothing.
    let module = unsafe { SharedObject::open(&folder.join("tbb.so")) }
        .map_err(|why| format!("--vs tbb: {why}"))?;
    let symbol = module.symbol(c"dtl_bench_tbb").ok_or("--vs tbb: no dtl_bench_tbb in it")?;
    // SAFETY: the function of this name in tbb.cpp has this signature.
    Ok(Tbb(unsafe { std::mem::transmute::<*mut c_void, Loop>(symbol.ptr()) }))
}
