//! Tests of kernels that are compiled from source, with the module functions of an exec table. The
//! source uses the macros of dtl_kernel.h, so that every backend can compile it.

use crate::kit::prelude::*;
use crate::options::Kernels;
use crate::tests::lifecycle::without_warning;
use crate::tests::limits::{clamped, threads_of};
use std::ffi::{CStr, CString};
use std::sync::OnceLock;

pub(crate) const TESTS: &[(&str, Body)] = functions![
    Alone "exec.module.":
        computes, three_dimensions, groups_of_three_dimensions, blocks_share_memory,
        largest_block, bad_launches_refused, errors_have_a_log, unknown_kernel_not_found,
        launch_after_earlier_work, destroy_succeeds;
];

const ADD: &CStr = c"#include \"dtl_kernel.h\"\n\
    DTL_KERNEL(add, (DTL_GLOBAL int*, to), (int, what)) { to[DTL_GLOBAL_ID(0)] += what; }\n";

/// Further kernels. A file of `--binary` may have kernels of these names, too, and a kernel `fails`
/// (portable source cannot fail). Each thread of the first two has a number, and adds this number
/// and `what` to the element with this number. `place` numbers the threads along the grid,
/// `group_place` block by block. `sums` adds up the 64 integers of each block.
pub(super) const GRIDS: &CStr = c"#include \"dtl_kernel.h\"\n\
    DTL_KERNEL(place, (DTL_GLOBAL unsigned*, to), (unsigned, what)) {\n\
        const DTL_SIZE row = DTL_GLOBAL_ID(2) * DTL_GLOBAL_SIZE(1) + DTL_GLOBAL_ID(1);\n\
        const DTL_SIZE at = row * DTL_GLOBAL_SIZE(0) + DTL_GLOBAL_ID(0);\n\
        DTL_ATOMIC_ADD(&to[at], what + (unsigned)at);\n\
    }\n\
    DTL_KERNEL(group_place, (DTL_GLOBAL unsigned*, to), (unsigned, what)) {\n\
        const DTL_SIZE plane = DTL_GROUP_ID(2) * DTL_GROUP_COUNT(1) + DTL_GROUP_ID(1);\n\
        const DTL_SIZE block = plane * DTL_GROUP_COUNT(0) + DTL_GROUP_ID(0);\n\
        const DTL_SIZE row = DTL_LOCAL_ID(2) * DTL_LOCAL_SIZE(1) + DTL_LOCAL_ID(1);\n\
        const DTL_SIZE all = DTL_LOCAL_SIZE(0) * DTL_LOCAL_SIZE(1) * DTL_LOCAL_SIZE(2);\n\
        const DTL_SIZE at = block * all + row * DTL_LOCAL_SIZE(0) + DTL_LOCAL_ID(0);\n\
        DTL_ATOMIC_ADD(&to[at], what + (unsigned)at);\n\
    }\n\
    DTL_BLOCK_KERNEL(sums, (DTL_GLOBAL const int*, from), (DTL_GLOBAL int*, to)) {\n\
        DTL_SHARED(int, part, 64);\n\
        unsigned width;\n\
        DTL_THREADS { part[DTL_LOCAL_ID(0)] = from[DTL_GLOBAL_ID(0)]; }\n\
        for (width = 32; width > 0; width /= 2) {\n\
            DTL_THREADS {\n\
                if (DTL_LOCAL_ID(0) < width)\n\
                    part[DTL_LOCAL_ID(0)] += part[DTL_LOCAL_ID(0) + width];\n\
            }\n\
        }\n\
        DTL_THREADS { if (DTL_LOCAL_ID(0) == 0) to[DTL_GROUP_ID(0)] = part[0]; }\n\
    }\n";

/// Kernels from the command line, which are tested instead of [`ADD`].
pub(crate) static KERNELS: OnceLock<Kernels> = OnceLock::new();

/// Signature of kernels whose results the tests can compute: a pointer and an `int`.
pub(super) const ADDS: &str = "pi";

/// Returns the contents and the language of the file that `--binary` names; `None` without this
/// option.
pub(super) fn binary() -> Outcome<Option<(Vec<u8>, dtl_enum_word_t)>> {
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

pub(super) fn signature() -> &'static str {
    KERNELS.get().and_then(|kernels| kernels.signature.as_deref()).unwrap_or(ADDS)
}

/// Compiles the module under test: the file that `--binary` names, or otherwise [`ADD`].
pub(super) fn module(s: &Subject) -> Outcome<Module> {
    match binary()? {
        Some((bytes, language)) => Ok(compile(s, &bytes, language)?),
        None => Ok(compile(s, ADD.to_bytes(), 0)?),
    }
}

/// Returns the name of the kernel under test.
pub(super) fn name() -> CString {
    let name = KERNELS.get().and_then(|kernels| kernels.kernel.as_deref()).unwrap_or("add");
    CString::new(name).unwrap_or_default()
}

/// Returns the kernel under test.
pub(super) fn named(module: &Module) -> Outcome<Kernel> {
    Ok(kernel(module, &name())?)
}

/// Module that is destroyed when dropped.
pub(super) struct Module(dtl_module_t);

impl Drop for Module {
    fn drop(&mut self) {
        let _ = dtl_module_destroy(self.0);
    }
}

pub(super) fn compile(s: &Subject, bytes: &[u8], language: dtl_enum_word_t) -> Called<Module> {
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
    let signature = CString::new(signature()).unwrap_or_default();
    kernel_with(module, name, Some(&signature))
}

pub(super) fn kernel_with(
    module: &Module,
    name: &CStr,
    signature: Option<&CStr>,
) -> Called<Kernel> {
    let (mut handle, letters) = (DTL_KERNEL_NULL, signature.map_or(ptr::null(), CStr::as_ptr));
    call!(dtl_kernel_get(module.0, name.as_ptr(), letters, &raw mut handle))?;
    Ok(Kernel::of(handle))
}

pub(super) fn needed(s: &Subject) -> Outcome {
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
    let (stream, block) = (Stream::new(s.backend, 0)?, zeroed(s, 4000)?);
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

/// Allocates memory for a kernel. Kernels of a backend without memory compute in that of the host.
fn memory(s: &Subject, contents: &[u8]) -> Outcome<Block> {
    if !s.has("memory") {
        return Ok(Backend::find("host")?.alloc_with(DTL_MEMORY_HOST, contents)?);
    }
    let kind =
        [DTL_MEMORY_DEVICE, DTL_MEMORY_HOST].into_iter().find(|kind| s.kind(*kind).is_some());
    let Some(kind) = kind else { skip!("it has neither device nor host memory") };
    Ok(s.backend.alloc_with(kind, contents)?)
}

/// Allocates zeroed memory for a kernel.
fn zeroed(s: &Subject, size: u64) -> Outcome<Block> {
    memory(s, &vec![0; size as usize])
}

/// Array of up to 1000 numbers, a kernel that adds to them, and a launch with a thread for each.
pub(super) struct Sum {
    pub(super) block: Block,
    pub(super) kernel: Kernel,
    pub(super) shape: dtl_launch_t,
}

impl Sum {
    /// Checks that launches with other arguments than those of the kernel are refused.
    pub(super) fn refuses_arguments(&self, stream: &Stream) -> Outcome {
        let (pointer, number) = (self.block.address().to_ne_bytes(), 5_i32.to_ne_bytes());
        let lists: [(&str, &[&[u8]]); 4] = [
            ("no arguments instead of 2", &[]),
            ("1 argument instead of 2", &[&pointer]),
            ("3 arguments instead of 2", &[&pointer, &number, &number]),
            ("an int of 8 bytes", &[&pointer, &pointer]),
        ];
        for (what, args) in lists {
            let result = stream.launch(&self.kernel, &self.shape, args);
            refused(result, DTL_ERROR_INVALID_ARGUMENT, what)?;
        }
        Ok(())
    }

    pub(super) fn new(s: &Subject) -> Outcome<Sum> {
        Sum::of(s, named(&module(s)?)?)
    }

    pub(super) fn of(s: &Subject, kernel: Kernel) -> Outcome<Sum> {
        let shape = clamped(s, shape([10, 1, 1], [100, 1, 1], 0));
        let block = zeroed(s, threads_of(&shape) * 4)?;
        Ok(Sum { block, kernel, shape })
    }

    /// Launches the kernel on the stream, with arguments that make it add 5 to each number.
    pub(super) fn launch(&self, stream: &Stream) -> Outcome {
        let args: [&[u8]; 2] = [&self.block.address().to_ne_bytes(), &5_i32.to_ne_bytes()];
        Ok(stream.launch(&self.kernel, &self.shape, &args)?)
    }

    /// Waits for the stream and checks the sums.
    pub(super) fn check(&self, stream: &Stream) -> Outcome {
        stream.synchronize()?;
        let numbers = threads_of(&self.shape);
        check!(is_each(&self.block, 5)?, "{numbers} numbers should each be 5 more")
    }
}

/// Returns true if each integer of the block is `value`.
pub(super) fn is_each(block: &Block, value: i32) -> Outcome<bool> {
    Ok(block.all()?.chunks(4).all(|word| word == value.to_ne_bytes()))
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

/// Returns a kernel of [`GRIDS`]. Skips the test if the file of `--binary` does not have it.
pub(super) fn of_grids(s: &Subject, name: &CStr, signature: &CStr) -> Outcome<Kernel> {
    needed(s)?;
    let module = match binary()? {
        Some((bytes, language)) => compile(s, &bytes, language)?,
        None => compile(s, GRIDS.to_bytes(), 0)?,
    };
    match kernel_with(&module, name, Some(signature)) {
        Err(refused) if refused.status == DTL_ERROR_NOT_FOUND && binary()?.is_some() => {
            skip!("the file of --binary has no kernel {name:?} with signature {signature:?}")
        }
        kernel => Ok(kernel?),
    }
}

const SHAPES: [([u32; 3], [u32; 3]); 5] = [
    ([3, 4, 5], [4, 2, 3]),
    ([1, 1, 6], [1, 1, 8]),
    ([1, 7, 1], [1, 5, 1]),
    ([2, 3, 1], [1, 3, 4]),
    ([9, 1, 2], [8, 1, 1]),
];

/// Number that `place` and `group_place` add, beside that of the thread.
const WHAT: u32 = 1000;

/// Elements for `place` and `group_place`, one for each thread, and 16 that stay 0.
struct Placed {
    grid: [u32; 3],
    block: [u32; 3],
    to: Block,
}

impl Placed {
    fn new(s: &Subject, grid: [u32; 3], block: [u32; 3]) -> Outcome<Placed> {
        let threads: u32 = grid.iter().chain(&block).product();
        let to = zeroed(s, u64::from(threads) * 4 + 64)?;
        Ok(Placed { grid, block, to })
    }

    /// Launches the kernel and waits for it.
    fn launch(&self, stream: &Stream, kernel: &Kernel) -> Called {
        let args: [&[u8]; 2] = [&self.to.address().to_ne_bytes(), &WHAT.to_ne_bytes()];
        stream.launch(kernel, &shape(self.grid, self.block, 0), &args)?;
        stream.synchronize()
    }

    /// Checks that each element has the number of its own thread once.
    fn check(&self) -> Outcome {
        let (grid, block) = (self.grid, self.block);
        let threads: u32 = grid.iter().chain(&block).product();
        for (word, at) in self.to.all()?.chunks(4).zip(0..) {
            let is = word.try_into().map_or(0, u32::from_ne_bytes);
            let should = if at < threads { WHAT + at } else { 0 };
            ensure!(
                is == should,
                "grid {grid:?} of blocks {block:?}: element {at} is {is}, expected {should}"
            );
        }
        Ok(())
    }
}

/// Launches `place` or `group_place` and checks the elements.
fn placed(s: &Subject, kernel: &Kernel, grid: [u32; 3], block: [u32; 3]) -> Outcome {
    let (stream, placed) = (Stream::new(s.backend, 0)?, Placed::new(s, grid, block)?);
    placed.launch(&stream, kernel)?;
    placed.check()
}

fn all_placed(s: &Subject, name: &CStr) -> Outcome {
    let kernel = of_grids(s, name, c"pI")?;
    for (grid, block) in SHAPES {
        let launch = clamped(s, shape(grid, block, 0));
        placed(s, &kernel, launch.grid, launch.block)?;
    }
    Ok(())
}

fn three_dimensions(s: &Subject) -> Outcome {
    all_placed(s, c"place")
}

fn groups_of_three_dimensions(s: &Subject) -> Outcome {
    all_placed(s, c"group_place")
}

fn blocks_share_memory(s: &Subject) -> Outcome {
    const BLOCKS: u32 = 20;
    let kernel = of_grids(s, c"sums", c"pp")?;
    let launch = shape([BLOCKS, 1, 1], [64, 1, 1], 0);
    let most = clamped(s, launch);
    if (most.grid, most.block) != (launch.grid, launch.block) {
        skip!("the device does not accept {BLOCKS} blocks of 64 threads");
    }
    let numbers: Vec<i32> = (0..BLOCKS as i32 * 64).map(|at| at * at % 1009 - 300).collect();
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    let stream = Stream::new(s.backend, 0)?;
    let (from, to) = (memory(s, &bytes)?, memory(s, &[0xA5; BLOCKS as usize * 4 + 64])?);
    let args: [&[u8]; 2] = [&from.address().to_ne_bytes(), &to.address().to_ne_bytes()];
    for _ in 0..5 {
        stream.launch(&kernel, &launch, &args)?;
    }
    stream.synchronize()?;
    let sums = numbers.chunks(64).map(|block| block.iter().sum::<i32>().to_ne_bytes());
    let should: Vec<u8> = sums.flatten().chain([0xA5; 64]).collect();
    same!(&to.all()?, &should, "the sums of {BLOCKS} blocks of 64 integers: {}")?;
    same!(&from.all()?, &bytes, "the integers that were added up: {}")
}

/// A kernel may use more registers than a block of the largest size has. The launch fails then.
fn largest_block(s: &Subject) -> Outcome {
    let kernel = of_grids(s, c"place", c"pI")?;
    let placed = Placed::new(s, [2, 1, 1], super::kernel::largest_block(s)?)?;
    match placed.launch(&Stream::new(s.backend, 0)?, &kernel) {
        Ok(()) => placed.check(),
        Err(_) => self::placed(s, &kernel, [2, 1, 1], [1; 3]),
    }
}

fn bad_launches_refused(s: &Subject) -> Outcome {
    needed(s)?;
    if signature() != ADDS {
        skip!("only what a kernel of signature \"{ADDS}\" computes is known");
    }
    let (stream, sum) = (Stream::new(s.backend, 0)?, Sum::new(s)?);
    sum.refuses_arguments(&stream)?;
    let (pointer, number) = (sum.block.address().to_ne_bytes(), 5_i32.to_ne_bytes());
    super::kernel::refuses_shapes(s, &stream, &sum.kernel, &[&pointer, &number])?;
    sum.launch(&stream)?;
    sum.check(&stream)
}
