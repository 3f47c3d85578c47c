//! Adapter from the module functions of a C exec table to [`Modules`].

use super::{NativeComponent, call, presence, whole};
use crate::abi::backend::vtable::dtl_exec_vtable_t;
use crate::abi::devices::exec::{dtl_source_file_t, dtl_source_t};
use crate::error::{Result, fail};
use crate::runtime::component::{
    Compiled, FoundKernel, KernelQuery, ModuleLaunch, Modules, Source, SourceFile, Token,
};
use std::ffi::{CString, c_char, c_void};

/// Returns true if an exec table has all module slots (functions) and false if it has none. Returns
/// an error if only some are present, or if the stream slots are missing.
pub(super) fn check(table: &dtl_exec_vtable_t) -> Result<bool> {
    let slots =
        presence!(table, module_compile, module_destroy, kernel_get, kernel_destroy, kernel_launch);
    let has_modules = whole("exec", "modules", slots)?;
    if has_modules && table.stream_create.is_none() {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "exec.stream_create is NULL: the modules slots need the streams slots"
        );
    }
    Ok(has_modules)
}

/// Log callback that is passed to the table's compile function: appends `size` bytes of `text` to
/// the log.
unsafe extern "C" fn note(user: *mut c_void, text: *const c_char, size: u64) {
    if user.is_null() || text.is_null() {
        return;
    }
    // SAFETY: `user` is the list that `compile` passes. The slot makes one call at a time and only
    // while it runs.
    let log = unsafe { &mut *user.cast::<Vec<u8>>() };
    // SAFETY: `text` has `size` bytes by the slot's contract.
    log.extend_from_slice(unsafe { std::slice::from_raw_parts(text.cast(), size as usize) });
}

/// Converts a string that came from C back to a C string. The conversion does not fail, because
/// such a string contains no NUL.
fn c_text(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}

fn file((file, name): (&SourceFile, &CString)) -> dtl_source_file_t {
    dtl_source_file_t {
        name: name.as_ptr(),
        text: file.text.as_ptr().cast(),
        size_bytes: file.text.count_bytes() as u64,
        reserved: 0,
    }
}

impl Modules for NativeComponent<dtl_exec_vtable_t> {
    fn compile(&self, device: i32, source: &Source, log: &mut String) -> Result<Token> {
        let options: Vec<*const c_char> =
            source.options.iter().map(|option| option.as_ptr()).collect();
        let names: Vec<CString> = source.files.iter().map(|file| c_text(&file.name)).collect();
        let files: Vec<dtl_source_file_t> = source.files.iter().zip(&names).map(file).collect();
        let given = dtl_source_t {
            struct_size: size_of::<dtl_source_t>() as u32,
            option_count: options.len() as u32,
            language: source.language,
            text: source.terminated().as_ptr().cast(),
            size_bytes: source.bytes().len() as u64,
            options: if options.is_empty() { std::ptr::null() } else { options.as_ptr() },
            name: source.name.as_ptr(),
            files: if files.is_empty() { std::ptr::null() } else { files.as_ptr() },
            environments: std::ptr::null(), // started; the options have their folders
            file_count: files.len() as u32,
            environment_count: 0,
        };
        let (mut log_bytes, mut module) = (Vec::<u8>::new(), std::ptr::null_mut());
        let user: *mut c_void = (&raw mut log_bytes).cast();
        let result = call!(self.exec.module_compile(
            device,
            &raw const given,
            Some(note),
            user,
            &raw mut module
        ));
        log.push_str(&String::from_utf8_lossy(&log_bytes));
        result?;
        self.owner.not_null("exec.module_compile", module)
    }

    fn destroy(&self, module: Token) -> Result<()> {
        call!(self.exec.module_destroy(module.ptr()))
    }

    fn kernel(&self, module: Token, wanted: KernelQuery<'_>) -> Result<FoundKernel> {
        let name = c_text(wanted.name);
        let signature = wanted.signature.map(c_text);
        let signature = signature.as_ref().map_or(std::ptr::null(), |text| text.as_ptr());
        let mut kernel = std::ptr::null_mut();
        call!(self.exec.kernel_get(module.ptr(), name.as_ptr(), signature, &raw mut kernel))?;
        Ok((Compiled::Own(self.owner.not_null("exec.kernel_get", kernel)?), None))
    }

    fn kernel_destroy(&self, kernel: Token) -> Result<()> {
        call!(self.exec.kernel_destroy(kernel.ptr()))
    }

    fn launch(&self, stream: Token, kernel: Token, launch: &ModuleLaunch<'_>) -> Result<()> {
        call!(self.exec.kernel_launch(
            stream.ptr(),
            kernel.ptr(),
            launch.shape,
            // An `Addr` has the layout of a pointer, so an array of them is an array of pointers.
            launch.args.as_ptr().cast(),
            launch.sizes.as_ptr(),
            launch.args.len() as u64
        ))
    }
}
