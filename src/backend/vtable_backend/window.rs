//! Adapter from the window functions (`win_*`) of a C comm table to [`WireWindows`].

use super::call;
use super::comm::NativeWire;
use crate::abi::backend::vtable::DTL_WIN_KEY_BYTES;
use crate::abi::word::dtl_dtype_t;
use crate::backend::p2p_protocol::{Begin, WireWindows};
use crate::error::Result;
use crate::runtime::component::{OpId, RmaOp};
use crate::sys::memory::buf::{Addr, Region};
use std::ffi::c_void;

/// Buffer to which `win_create` of the comm table writes the remote key; aligned for any struct.
#[repr(align(16))]
struct Key([u8; DTL_WIN_KEY_BYTES as usize]);

impl WireWindows for NativeWire {
    fn create(&mut self, memory: Region) -> Result<(Addr, Vec<u8>)> {
        let (mut window, mut key, mut bytes) =
            (std::ptr::null_mut(), Key([0; DTL_WIN_KEY_BYTES as usize]), 0);
        call!(self.comm.win_create(
            self.object.ptr(),
            or_null(memory),
            memory.len() as u64,
            &raw mut window,
            (&raw mut key).cast(),
            &raw mut bytes
        ))?;
        let window = self.owner.not_null("comm.win_create", window)?;
        if bytes > DTL_WIN_KEY_BYTES {
            self.destroy(window)?;
            let text =
                format!("answered a key of {bytes} bytes; there is room for {DTL_WIN_KEY_BYTES}");
            return Err(self.owner.invalid("comm.win_create", &text));
        }
        Ok((window, key.0.iter().copied().take(bytes as usize).collect()))
    }

    fn attach(&mut self, window: Addr, rank: i32, key: &[u64], bytes: usize) -> Result<()> {
        call!(self.comm.win_attach(
            self.object.ptr(),
            window.ptr(),
            rank,
            key.as_ptr().cast(),
            bytes as u32
        ))
    }

    fn destroy(&mut self, window: Addr) -> Result<()> {
        call!(self.comm.win_destroy(self.object.ptr(), window.ptr()))
    }

    fn has_atomics(&mut self, window: Addr, dtype: dtl_dtype_t) -> Result<bool> {
        if self.table.win_atomics.is_none() {
            return Ok(false);
        }
        let mut yes = 0;
        call!(self.comm.win_atomics(self.object.ptr(), window.ptr(), dtype, &raw mut yes))?;
        self.owner.boolean("comm.win_atomics", yes)
    }

    fn start(&mut self, window: Addr, begin: &Begin) -> Result<OpId> {
        let (object, window, mut op) = (self.object.ptr(), window.ptr(), 0);
        match *begin {
            Begin::Op(to, RmaOp::Put(from)) => call!(self.comm.win_put(
                object,
                window,
                from.addr().ptr().cast_const(),
                to.len as u64,
                to.target,
                to.offset as u64,
                &raw mut op
            )),
            Begin::Op(from, RmaOp::Get(into)) => call!(self.comm.win_get(
                object,
                window,
                into.addr().ptr(),
                from.len as u64,
                from.target,
                from.offset as u64,
                &raw mut op
            )),
            Begin::Op(to, RmaOp::Accumulate { from, result, by }) => {
                call!(self.comm.win_accumulate(
                    object,
                    window,
                    or_null(from).cast_const(),
                    or_null(result),
                    (to.len / by.update.size().max(1)) as u64,
                    by.dtype,
                    to.target,
                    to.offset as u64,
                    by.op,
                    &raw mut op
                ))
            }
            Begin::Op(to, RmaOp::CompareAndSwap(swap)) => call!(self.comm.win_compare_and_swap(
                object,
                window,
                swap.value.addr().ptr().cast_const(),
                swap.expected.addr().ptr().cast_const(),
                swap.result.addr().ptr(),
                swap.dtype,
                to.target,
                to.offset as u64,
                &raw mut op
            )),
            Begin::Flush(target) => {
                call!(self.comm.win_flush(object, window, target, &raw mut op))
            }
        }?;
        Ok(OpId(op))
    }
}

/// Returns the address of a region, or null if the region is empty.
fn or_null(region: Region) -> *mut c_void {
    if region.is_empty() { std::ptr::null_mut() } else { region.addr().ptr() }
}
