//! The constants, codes, structs and functions of src/backend/cuda and src/backend/nccl against NVIDIA's cuda.h, nvrtc.h and nccl.h: a C program is
//! written of the very lists that the library uses, and the C compiler says which row is wrong. A function's type is compared
//! as its call goes. The headers come with CUDA, with Python's packages nvidia-cuda-runtime-cu12, nvidia-cuda-nvrtc-cu12 and
//! nvidia-nccl-cu12, or by tests/gpu_wheels.sh; DTL_TEST_CUDA_INCLUDE names their folder.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking and speaks to its reader"
)]

use dtl::backend::cuda::errors::NAMES;
use dtl::backend::cuda::modules::nvrtc;
use dtl::backend::cuda::symbols::{CONSTANTS, FUNCTIONS, SIZES};
use dtl::backend::nccl;
use dtl::backend::symbol_table::Function;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A header, and the lists that are compared with it.
struct Header {
    file: &'static str,
    /// Of one of NVIDIA's Python packages.
    package: &'static str,
    types: &'static str,
    constants: &'static [(&'static str, i64)],
    names: &'static [(u32, &'static str)],
    sizes: &'static [(&'static str, usize)],
    layout: &'static [(&'static str, usize)],
    functions: &'static [Function],
}

const DRIVER: Header = Header {
    file: "cuda.h",
    package: "cuda_runtime",
    types: TYPES,
    constants: CONSTANTS,
    names: NAMES,
    sizes: SIZES,
    layout: &[],
    functions: FUNCTIONS,
};

const COMPILER: Header = Header {
    file: "nvrtc.h",
    package: "cuda_nvrtc",
    types: NVRTC_TYPES,
    constants: &[],
    names: nvrtc::NAMES,
    sizes: &[],
    layout: &[],
    functions: nvrtc::FUNCTIONS,
};

const COLLECTIVES: Header = Header {
    file: "nccl.h",
    package: "nccl",
    types: NCCL_TYPES,
    constants: nccl::symbols::CONSTANTS,
    names: nccl::errors::NAMES,
    sizes: &[],
    layout: nccl::symbols::LAYOUT,
    functions: nccl::symbols::FUNCTIONS,
};

/// The C types of the lists, all as wide and of the same class as the header's.
const TYPES: &str = "#include <cuda.h>
typedef CUresult Code; typedef int Int; typedef int *IntOut; typedef CUdevice Device; typedef CUdevice *DeviceOut;
typedef unsigned Uint; typedef void *UintOut; typedef unsigned char Byte; typedef float *FloatOut; typedef size_t Size;
typedef size_t *SizeOut; typedef unsigned long long Long; typedef const void *In; typedef void *Out; typedef void *OutOut;
typedef const char *Text; typedef char *TextOut; typedef const char **Texts; typedef void *Object; typedef void *ObjectOut;
typedef CUdeviceptr Ptr; typedef CUdeviceptr *PtrOut; typedef const void *RowsIn; typedef const void *PoolIn;
typedef CUipcMemHandle Ipc; typedef CUipcMemHandle *IpcOut;
_Static_assert(sizeof(Ptr) == sizeof(unsigned long long) && sizeof(Code) == sizeof(unsigned), \"widths\");
";

const NVRTC_TYPES: &str = "#include <nvrtc.h>
typedef nvrtcResult Code; typedef int Int; typedef int *IntOut; typedef size_t *SizeOut; typedef const char *Text;
typedef char *TextOut; typedef const char *const *Texts; typedef nvrtcProgram Object; typedef nvrtcProgram *ObjectOut;
typedef void *Out; typedef int (*Ask)(void *, void *);
_Static_assert(sizeof(Code) == sizeof(unsigned), \"widths\");
";

/// nccl.h asks CUDA's runtime interface for one type only.
const NCCL_TYPES: &str = "#include <stddef.h>
typedef struct CUstream_st *cudaStream_t;
#include <nccl.h>
typedef ncclResult_t Code; typedef ncclResult_t *CodeOut; typedef int Int; typedef int *IntOut; typedef unsigned Kind;
typedef size_t Size; typedef const void *In; typedef void *Out; typedef const char *Text; typedef void *Object;
typedef void *ObjectOut; typedef ncclUniqueId Id; typedef ncclUniqueId *IdOut; typedef ncclConfig_t *ConfigIn;
_Static_assert(sizeof(Code) == sizeof(unsigned) && sizeof(ncclDataType_t) == sizeof(Kind), \"widths\");
";

fn include(header: &Header) -> Option<PathBuf> {
    let named = std::env::var_os("DTL_TEST_CUDA_INCLUDE").map(PathBuf::from);
    let usual = ["/usr/local/cuda/include", "/usr/include"].map(PathBuf::from);
    let script = "import importlib.util as u\nfor p in u.find_spec('nvidia').submodule_search_locations: print(p)";
    let python = Command::new("python3").args(["-c", script]).output().ok();
    let python = python
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    let fetched = [concat!(env!("CARGO_MANIFEST_DIR"), "/build/wheels/nvidia")];
    let wheels = fetched.into_iter().chain(python.lines());
    let wheels = wheels.map(|folder| Path::new(folder).join(header.package).join("include"));
    let mut all = named.into_iter().chain(usual).chain(wheels);
    all.find(|folder| folder.join(header.file).is_file())
}

/// Whether a program compiles; the compiler's words.
fn compiles(include: &Path, header: &Header, program: &str) -> Result<(), String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    // Empty ones, for a header that includes more than is compared.
    let empty = folder.join("empty");
    std::fs::create_dir_all(&empty).unwrap();
    for name in ["cuda_runtime.h", "cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h"] {
        std::fs::write(empty.join(name), "").unwrap();
    }
    let source = folder.join(format!("{}_{}.c", header.package, std::process::id()));
    std::fs::write(&source, program).unwrap();
    let mut compiler = Command::new("cc");
    let output = compiler.args(["-fsyntax-only", "-Werror", "-Wno-deprecated-declarations"]);
    let output = output
        .arg("-I")
        .arg(include)
        .arg("-idirafter")
        .arg(empty)
        .arg(&source)
        .output()
        .expect("a C compiler");
    std::fs::remove_file(&source).unwrap();
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

fn program(header: &Header, constants: &[(&str, i64)]) -> String {
    let mut text = header.types.to_owned();
    for (name, value) in constants {
        writeln!(text, "_Static_assert((long long)({name}) == {value}ll, \"{name}\");").unwrap();
    }
    for (code, name) in header.names {
        writeln!(text, "_Static_assert({name} == {code}, \"{name}\");").unwrap();
    }
    for (name, size) in header.sizes {
        writeln!(text, "_Static_assert(sizeof({name}) == {size}, \"{name}\");").unwrap();
    }
    for (expression, value) in header.layout {
        writeln!(text, "_Static_assert({expression} == {value}, \"{expression}\");").unwrap();
    }
    for function in header.functions {
        let (name, result) = (function.name, function.result);
        let types: Vec<&str> =
            function.parameters.split(", ").filter(|kind| !kind.is_empty()).collect();
        let list: Vec<String> =
            types.iter().enumerate().map(|(at, kind)| format!("{kind} a{at}")).collect();
        let names: Vec<String> = (0..types.len()).map(|at| format!("a{at}")).collect();
        let list = if list.is_empty() { "void".to_owned() } else { list.join(", ") };
        writeln!(text, "{result} call_{name}({list}) {{ return {name}({}); }}", names.join(", "))
            .unwrap();
    }
    text
}

fn compare(header: &Header, wrong: (&str, i64)) {
    let Some(include) = include(header) else {
        println!(
            "skipped: no {} (tests/gpu_wheels.sh fetches it), or name its folder in DTL_TEST_CUDA_INCLUDE",
            header.file
        );
        return;
    };
    if let Err(why) = compiles(&include, header, &program(header, header.constants)) {
        panic!("{why}");
    }
    assert!(
        compiles(&include, header, &program(header, &[wrong])).is_err(),
        "a wrong value is not seen"
    );
}

#[test]
fn the_drivers_lists_are_those_of_the_header() {
    compare(&DRIVER, ("CU_EVENT_DISABLE_TIMING", 3));
}

#[test]
fn the_compilers_lists_are_those_of_the_header() {
    compare(&COMPILER, ("NVRTC_ERROR_CANCELLED", 15));
}

#[test]
fn the_lists_of_collectives_are_those_of_the_header() {
    compare(&COLLECTIVES, ("ncclMax", 3));
    let Some(include) = include(&COLLECTIVES) else { return };
    let text = std::fs::read_to_string(include.join(COLLECTIVES.file)).unwrap();
    assert_eq!(nccl::symbols::Config::NON_BLOCKING.magic, 0xCAFE_BEEF);
    assert!(text.contains("0xcafebeef,           /* magic */"), "the magic number of ncclConfig_t");
}
