//! Compilation of CUDA C++ into code that the driver loads. NVRTC compiles a source only if the
//! kernel cache does not have the result.
//!
//! A cache entry is one file: one line of JSON with the parameter sizes of each kernel for which
//! they are known, then the code (a cubin, or NUL-terminated PTX).

use super::includes;
use super::nvrtc::{Nvrtc, Output};
use super::ptx::{self, Entries};
use crate::backend::kernel_cache::{Inputs, KernelCache, write};
use crate::error::{Result, fail};
use crate::runtime::component::{KERNEL_HEADER, Source};
use crate::runtime::{log, settings};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;

const OBJECT: &str = "kernels.cuda";

/// Compiled code for the driver, with the parameter sizes of the kernels in this code.
pub(super) struct Image {
    /// A cubin, or NUL-terminated PTX.
    pub(super) code: Vec<u8>,
    /// Parameter sizes in bytes, keyed by kernel name.
    pub(super) entries: Entries,
}

/// Compilation job: compiler, source and options.
struct Order<'a> {
    nvrtc: Nvrtc,
    source: &'a Source,
    /// Compiler options that the library adds, followed by those of the caller.
    options: Vec<CString>,
}

/// Compiles `source` for a device of compute capability `capability` (such as 90) under a driver of
/// version `driver` (such as 12040), or returns the cached result.
pub(super) fn compile(
    source: &Source,
    capability: i32,
    driver: i32,
    log: &mut String,
) -> Result<Image> {
    let nvrtc = Nvrtc::find(driver)?;
    let mut options = Vec::new();
    if !source.options.iter().any(|option| names_architecture(option.as_bytes())) {
        options.push(nvrtc.architecture(capability)?);
    }
    options.extend(source.options.iter().cloned());
    let order = Order { nvrtc, source, options };
    let Some(inputs) = order.inputs() else { return order.run(log) };
    let Some(folder) = settings::current().compiler.cache else { return order.run(log) };
    let cache = KernelCache::open(Some(&folder), OBJECT)?;
    if let Some(entry) = cache.find(inputs.bytes())? {
        if let Some(image) = unpack(&entry.bytes) {
            *log = entry.log;
            return Ok(image);
        }
    }
    let image = order.run(log)?;
    // An input file changed during the compilation. Which version was compiled is unknown, so the
    // result is not cached.
    if order.inputs().is_none_or(|now| now.bytes() != inputs.bytes()) {
        return Ok(image);
    }
    let kept = cache.make(inputs.bytes(), |folder| {
        write(&folder.join(OBJECT), &pack(&image))?;
        Ok((Vec::new(), log.clone()))
    });
    if let Err(error) = kept {
        log::warning!("{}", error.text()); // not cached: compiled again next time
    }
    Ok(image)
}

/// Returns true if `option` selects the target architecture.
fn names_architecture(option: &[u8]) -> bool {
    [&b"--gpu-architecture"[..], b"-arch"].iter().any(|name| {
        option.strip_prefix(*name).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"="))
    })
}

impl Order<'_> {
    /// Returns all inputs on which the compiled code depends, or `None` if they cannot be
    /// determined.
    fn inputs(&self) -> Option<Inputs> {
        let mut inputs = Inputs::new();
        inputs.add("compiler of", b"cuda");
        inputs.add("header", KERNEL_HEADER.to_bytes());
        inputs.add_program("nvrtc", &self.nvrtc.file).ok()?;
        for number in [self.nvrtc.version.0, self.nvrtc.version.1] {
            inputs.add("version", &number.to_le_bytes());
        }
        // NVRTC reads these environment variables. Flags that it appends from them could name
        // files.
        let mut variables: Vec<_> = std::env::vars_os()
            .filter(|(name, _)| {
                [&b"NVRTC_"[..], b"LIBNVVM_"].iter().any(|one| name.as_bytes().starts_with(one))
            })
            .collect();
        variables.sort_unstable();
        for (name, value) in variables {
            if name.as_bytes().ends_with(b"_FLAGS") && !value.is_empty() {
                return None;
            }
            inputs.add("variable", name.as_bytes());
            inputs.add("value", value.as_bytes());
        }
        self.options.iter().for_each(|option| inputs.add("option", option.as_bytes()));
        for file in &self.source.files {
            inputs.add("file", file.name.as_bytes());
            inputs.add("text", file.text.as_bytes());
        }
        inputs.add("name", self.source.name.as_bytes());
        inputs.add("source", self.source.bytes());
        includes::add(&mut inputs, self.source).then_some(inputs)
    }

    /// Compiles the source.
    fn run(&self, log: &mut String) -> Result<Image> {
        log.clear();
        let Output { ptx, cubin } = self.nvrtc.run(self.source, &self.options, log)?;
        let entries = ptx::entries(&ptx);
        let code = if cubin.is_empty() { ptx } else { cubin };
        if code.is_empty() {
            return fail!(
                DTL_ERROR_COMPILE_FAILED,
                "NVRTC made neither PTX nor a cubin: leave out options that ask for something else \
                 (-dlto)"
            );
        }
        Ok(Image { code, entries })
    }
}

fn pack(image: &Image) -> Vec<u8> {
    let mut packed = serde_json::to_vec(&image.entries).unwrap_or_default(); // cannot fail
    packed.push(b'\n');
    packed.extend_from_slice(&image.code);
    packed
}

fn unpack(bytes: &[u8]) -> Option<Image> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let (line, code) = bytes.split_at(end);
    let entries = serde_json::from_slice(line).ok()?;
    Some(Image { code: code.get(1..)?.to_vec(), entries })
}

#[cfg(test)]
#[path = "tests/source.rs"]
mod tests;
