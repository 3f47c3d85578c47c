//! Tests of kernels that are compiled from source, with the module functions of an exec table. The
//! source uses the macros of dtl_kernel.h, so that every backend can compile it.

use crate::kit::prelude::*;
use crate::options::Kernels;
use crate::tests::lifecycle::without_warning;
use std::ffi::{CStr, CString};
use std::sync::OnceLock;

pub(crate) const TESTS: &[(&str, Body)] = functions![
    Alone "exec.module.":
        computes, errors_have_a_log, unknown_kernel_not_found, launch_after_earlier_work,
        destroy_succeeds;
];

const ADD: &CStr = c"#include \"dtl_kernel.h\"\n\
    DTL_KERNEL(add, (DTL_GLOBAL int*, to), (int, what)) { to[DTL_GLOBAL_ID(0)] += what; }\n";

/// Kernels from the command line, which are tested instead of [`ADD`].
pub(crate) static KERNELS: OnceLock<Kernels> = OnceLock::new();

/// Signature of kernels whose results the tests can compute: a pointer and an `int`.
const ADDS: &str = "pi";

/// Returns the contents and the language of the file that `--binary` names; `None` without this
/// option.
fn binary() -> Outcome<Option<(Vec<u8>, dtl_enum_word_t)>> {
    let Some(path) = KERNELS.get().and_then(|kernels| kernels.binary.as_ref()) else {
        return Ok(None);
    };
    let language = match path.extension().and_then(|ending| ending.to_str()) {
        Some("ptx") => DTL_LANGUAGE_PTX,
        Some("spv") => DTL_LANGUAGE_SPIRV,
        _ => DTL_LANGUAGE_BINARY,
    };
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some((bytes, language))),
        Err(error) => wrong!("--binary {}: {error}", path.display()),
    }
}

fn signature() -> &'static str {
    KERNELS.get().and_then(|kernels| kernels.signature.as_deref()).unwrap_or(ADDS)
}

/// Compiles the module under test: the file that `--binary` names, or otherwise [`ADD`].
fn module(s: &Subject) -> Outcome<Module> {
    match binary()? {
        Some((bytes, language)) => Ok(compile(s, &bytes, language)?),
        None => Ok(compile(s, ADD.to_bytes(), 0)?),
    }
}

/// Returns the kernel under test.
fn named(module: &Module) -> Outcome<Kernel> {
    let name = KERNELS.get().and_then(|kernels| kernels.kernel.as_deref()).unwrap_or("add");
    let name = CString::new(name).unwrap_or_default();
    Ok(kernel(module, &name)?)
}

/// Module that is destroyed when dropped.
struct Module(dtl_module_t);

impl Drop for Module {
    fn drop(&mut self) {
        let _ = dtl_module_destroy(self.0);
    }
}

fn compile(s: &Subject, bytes: &[u8], language: dtl_enum_word_t) -> Called<Module> {
    let source = dtl_source_t {
        struct_size: size_of::<dtl_source_t>() as u32,
        option_count: 0,
        language,
        text: bytes.as_ptr().cast(),
        size_bytes: bytes.len() as u64,
        options: ptr::null(),
        name: ptr::null(),
        files: std::ptr::null(),
        environments: std::ptr::null(),
        file_count: 0,
        environment_count: 0,
    };
    let mut module = DTL_MODULE_NULL;
    call!(dtl_module_compile(s.backend.handle, 0, &raw const source, &raw mut module))?;
    Ok(Module(module))
}

fn kernel(module: &Module, name: &CStr) -> Called<Kernel> {
    let mut handle = DTL_KERNEL_NULL;
    let signature = CString::new(signature()).unwrap_or_default();
    call!(dtl_kernel_get(module.0, name.as_ptr(), signature.as_ptr(), &raw mut handle))?;
    Ok(Kernel::of(handle))
}

fn needed(s: &Subject) -> Outcome {
    if s.backend.supports("modules")? == 0 {
        skip!("it has no modules slots");
    }
    if binary()?.is_some() {
        return Ok(());
    }
    match compile(s, ADD.to_bytes(), 0) {
        Err(refused) if refused.status == DTL_ERROR_UNAVAILABLE => skip!("{}", refused.text),
        Err(refused) if refused.status == DTL_ERROR_NOT_SUPPORTED => {
            skip!(
                "it does not compile language 0 ({}); --binary FILE --kernel NAME tests a file \
                 that it takes",
                refused.text
            )
        }
        _ => Ok(()),
    }
}

/// Returns the size in bytes of a non-pointer argument from its letter in the signature. After `[`,
/// `rest` begins with the size and `]`.
fn size_of_argument(letter: char, rest: &mut std::str::Chars) -> usize {
    match letter.to_ascii_lowercase() {
        '[' => rest.by_ref().take_while(|c| *c != ']').collect::<String>().parse().unwrap_or(0),
        'b' => 1,
        'h' | 'e' => 2,
        'i' | 'f' => 4,
        _ => 8,
    }
}

/// Launches a kernel of any signature once. Pointer arguments point to 4000 zeroed bytes; all other
/// arguments are zero.
fn launched(s: &Subject) -> Outcome {
    let (stream, kind) = (Stream::new(s.backend, 0)?, memory_kind(s)?);
    let block = s.backend.alloc(kind, 4000, 0)?;
    block.fill(0, 0, 4000)?;
    let mut letters = signature().chars();
    let mut values: Vec<Vec<u8>> = Vec::new();
    while let Some(letter) = letters.next() {
        values.push(match letter {
            'p' => block.address().to_ne_bytes().to_vec(),
            _ => vec![0; size_of_argument(letter, &mut letters)],
        });
    }
    let args: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
    stream.launch(&named(&module(s)?)?, &shape([1, 1, 1], [1, 1, 1], 0), &args)?;
    Ok(stream.synchronize()?)
}

fn memory_kind(s: &Subject) -> Outcome<u64> {
    let kind =
        [DTL_MEMORY_DEVICE, DTL_MEMORY_HOST].into_iter().find(|kind| s.kind(*kind).is_some());
    let Some(kind) = kind else { skip!("it has no memory") };
    Ok(kind)
}

/// Array of 1000 numbers, and a kernel that adds to them.
struct Sum {
    block: Block,
    kernel: Kernel,
}

impl Sum {
    fn new(s: &Subject) -> Outcome<Sum> {
        let block = s.backend.alloc(memory_kind(s)?, 4000, 0)?;
        block.fill(0, 0, 4000)?;
        Ok(Sum { block, kernel: named(&module(s)?)? })
    }

    /// Launches the kernel on the stream, with arguments that make it add 5 to each number.
    fn launch(&self, stream: &Stream) -> Outcome {
        let args: [&[u8]; 2] = [&self.block.address().to_ne_bytes(), &5_i32.to_ne_bytes()];
        Ok(stream.launch(&self.kernel, &shape([10, 1, 1], [100, 1, 1], 0), &args)?)
    }

    /// Waits for the stream and checks the sums.
    fn check(&self, stream: &Stream) -> Outcome {
        stream.synchronize()?;
        let all = self.block.all()?;
        let right = all.chunks(4).all(|word| word == 5_i32.to_ne_bytes());
        check!(right, "1000 numbers should each be 5 more")
    }
}

fn computes(s: &Subject) -> Outcome {
    needed(s)?;
    if signature() != ADDS {
        return launched(s);
    }
    let (stream, sum) = (Stream::new(s.backend, 0)?, Sum::new(s)?);
    sum.launch(&stream)?;
    sum.check(&stream)
}

fn errors_have_a_log(s: &Subject) -> Outcome {
    needed(s)?;
    if binary()?.is_some() {
        skip!("--binary: a file has no errors of a compiler");
    }
    refused(compile(s, b"this is no source;", 0), DTL_ERROR_COMPILE_FAILED, "bad source")?;
    let mut length = 0;
    call!(dtl_module_log(DTL_MODULE_NULL, ptr::null_mut(), 0, &raw mut length))?;
    check!(length > 0, "the log of a failed compilation is empty")
}

fn unknown_kernel_not_found(s: &Subject) -> Outcome {
    needed(s)?;
    let module = module(s)?;
    refused(kernel(&module, c"no_such_kernel"), DTL_ERROR_NOT_FOUND, "a kernel that is not there")
}

fn launch_after_earlier_work(s: &Subject) -> Outcome {
    needed(s)?;
    if signature() != ADDS {
        skip!("only what a kernel of signature \"{ADDS}\" computes is known");
    }
    // Loading a kernel may wait for all work of the device, so it is loaded before the hold.
    let (stream, sum, hold) = (Stream::new(s.backend, 0)?, Sum::new(s)?, Hold::new());
    hold.on(&stream)?;
    sum.launch(&stream)?;
    std::thread::sleep(Duration::from_millis(20));
    let (early, has_ended) = (sum.block.all()?, hold.has_ended());
    hold.release();
    sum.check(&stream)?;
    if early.iter().all(|byte| *byte == 0) {
        return Ok(());
    }
    if has_ended {
        skip!("a call waited until the work in front of the launch had ended");
    }
    wrong!("the launch began before the work in front of it had ended")
}

fn destroy_succeeds(s: &Subject) -> Outcome {
    needed(s)?;
    without_warning("destroying a", || {
        let module = module(s)?;
        drop(named(&module)?);
        Ok(())
    })
}
