//! Backends in Rust: the tables of `dtl_backend.h` from implementations of traits.
//!
//! A slot is a function pointer in a table of `dtl_backend.h`.
//! A driver is a type that implements [`Driver`] and a trait for each component that it has.
//! [`Table`] lists the components, and a program registers it ([`Table::register`]), or a plugin file
//! ([`plugin!`](crate::plugin)). Slots that belong together are the functions of one trait. A single
//! optional slot is a constant of a trait: a function, or `None`. The table has NULL for a component
//! that is not listed and for `None`, so the library uses its own implementation, or reports
//! DTL_ERROR_NOT_SUPPORTED, as it does for a table in C.
//!
//! | trait | listed by | slots |
//! |---|---|---|
//! | [`Devices`] | [`Table::devices`] | the device table |
//! | [`Allocator`] | [`Table::allocator`] | alloc and free, descriptions of memory |
//! | [`Transfers`] | [`Table::transfers`] | copies that the caller waits for |
//! | [`StreamTransfers`] | [`Table::stream_transfers`] | copies in streams |
//! | [`Streams`] | [`Table::streams`] | streams |
//! | [`Events`] | [`Table::events`] | events |
//! | [`Priorities`] | [`Table::priorities`] | priorities of streams |
//! | [`Modules`] | [`Table::modules`] | kernels from source |
//! | [`Transport`] | [`Table::transport`] | communicators |
//! | [`Collectives`] | [`Table::collectives`] | collectives of a transport |
//!
//! The other slots of the header (memory of other processes, registered memory, allocation in
//! streams, host execution, windows and memory of a transport) have no trait;
//! [`Table::tables_mut`] sets them.
//!
//! - Objects (streams, events, modules, kernels, communicators) are values of the driver's types. The
//!   crate owns them for the library. Their drops destroy them.
//! - A function returns a [`Result`]. Status and text of an [`Error`] become those of the call of the
//!   program. Create one with [`Error::new`].
//! - A panic becomes DTL_ERROR_BACKEND with its text. With `panic = "abort"` it ends the process.
//! - `DTL_ERROR_NATIVE_BACKEND` is what the library returns for an invalid result, for example a
//!   negative device.
//!
//! ```
//! use dtl_binding::driver::{Devices, Driver, Table};
//! use dtl_binding::{Backend, Error, Result, sys};
//!
//! struct Card;
//! impl Driver for Card {}
//! impl Devices for Card {
//!     fn count(&self) -> Result<i32> {
//!         Ok(1)
//!     }
//!     fn set_current(&self, device: i32) -> Result {
//!         let text = format!("device {device}: there is only device 0");
//!         if device == 0 { Ok(()) } else { Err(Error::new(sys::DTL_ERROR_INVALID_ARGUMENT, text)) }
//!     }
//!     fn current(&self) -> Result<i32> {
//!         Ok(0)
//!     }
//! }
//!
//! # fn main() -> Result {
//! let card = Table::new(Card).devices().register("card")?;
//! assert_eq!(card, Backend::find("card")?);
//! assert_eq!(card.device_count()?, 1);
//! card.unregister()
//! # }
//! ```

#![allow(clippy::type_complexity, reason = "a constant has the parameters of a slot")]

mod collective;
mod device;
mod exec;
mod host;
mod plugin;
mod slot;
mod source;
mod transport;

pub use collective::{Collective, CollectiveInfo, Collectives};
pub use device::{Allocator, Devices, Extent, Origin, Rows, StreamTransfers, Target, Transfers};
pub use exec::{Callback, CallbackThreads, Events, Modules, Priorities, Streams};
pub use host::{kernel_header, log};
pub use plugin::Loader;
#[doc(hidden)]
pub use plugin::{c_text, enter, load};
pub use source::{Arguments, Headers, Parameter, SourceText};
pub use transport::{Incoming, OpenRequest, Opened, Outgoing, Transport};

#[cfg(feature = "program")]
use crate::{Backend, text::c_string};
use crate::{Result, sys};
use slot::{Out, Text, function_of, present, slots};
use std::ffi::{c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

/// A driver: the state of a backend. It is dropped after its last use, when the backend is
/// unregistered or the library is finalized.
pub trait Driver: Send + Sync + Sized + 'static {
    /// Returns the reason why the backend cannot run on this machine; `None` if it can. It must not
    /// fail on a machine without the hardware: a failure counts as a reason. `None`: always
    /// available.
    const UNAVAILABLE: Option<fn(&Self) -> Result<Option<String>>> = None;

    /// Returns true if the backend has a feature that `dtl_backend_supports` does not know. `None`:
    /// it has no such features.
    const SUPPORTS: Option<fn(&Self, &str) -> Result<bool>> = None;
}

/// Component tables.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tables {
    /// Devices.
    pub device: Option<sys::dtl_device_vtable_t>,
    /// Memory.
    pub memory: Option<sys::dtl_memory_vtable_t>,
    /// Copies.
    pub transfer: Option<sys::dtl_transfer_vtable_t>,
    /// Execution.
    pub exec: Option<sys::dtl_exec_vtable_t>,
    /// Communication.
    pub comm: Option<sys::dtl_comm_vtable_t>,
}

/// Components of a backend: its driver and the tables of functions that call it.
///
/// A component that the driver does not implement cannot be listed:
/// ```compile_fail,E0599
/// use dtl_binding::driver::{Driver, Table};
///
/// struct Card;
/// impl Driver for Card {}
/// let table = Table::new(Card).events();
/// ```
#[derive(Debug)]
pub struct Table<D> {
    driver: Box<D>,
    priority: i32,
    flags: u64,
    tables: Tables,
}

impl<D: Driver> Table<D> {
    /// Creates a table without components.
    #[must_use]
    pub fn new(driver: D) -> Self {
        Table { driver: Box::new(driver), priority: 0, flags: 0, tables: Tables::default() }
    }

    /// Sets the priority in the automatic choice; 0 = 40, `i32::MIN` = never chosen.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Sets flags of the table: DTL_BACKEND_NO_COMPUTE.
    #[must_use]
    pub fn flags(mut self, flags: u64) -> Self {
        self.flags = flags;
        self
    }

    /// Returns the component tables, to set slots that no trait has. The slot gets a pointer to the
    /// driver as its first argument.
    ///
    /// # Safety
    /// The functions must keep the rules of the header. A slot that a method of [`Table`] has set
    /// must not be replaced by a function that uses objects of other types.
    pub unsafe fn tables_mut(&mut self) -> &mut Tables {
        &mut self.tables
    }

    /// Registers the backend in the linked library under a name of 1 to 63 letters, digits, '_', '-'
    /// and '.'. The driver is dropped after the last use.
    ///
    /// # Errors
    /// See `dtl_backend_register`: DTL_ERROR_ALREADY_EXISTS if the name is taken. The driver is
    /// dropped then.
    #[cfg(feature = "program")]
    pub fn register(self, name: &str) -> Result<Backend> {
        const CALL: &str = "dtl_backend_register";
        host::set_linked();
        let name = c_string(CALL, "name", name)?;
        let handle = self.pass(name.as_ptr(), |name, table, this, out| {
            // SAFETY: the tables and the name live through the call, and the driver until `destroy`.
            crate::check(CALL, unsafe { sys::dtl_backend_register(name, table, this, 0, out) })
        })?;
        Ok(Backend::from_raw(handle))
    }

    /// Passes the tables to `register`. The driver belongs to the library after a success.
    fn pass(
        self,
        name: *const c_char,
        register: impl FnOnce(
            *const c_char,
            *const sys::dtl_backend_vtable_t,
            *mut c_void,
            *mut sys::dtl_backend_t,
        ) -> Result,
    ) -> Result<sys::dtl_backend_t> {
        let Table { driver, priority, flags, tables } = self;
        let table = sys::dtl_backend_vtable_t {
            auto_priority: priority,
            flags,
            is_available: present(D::UNAVAILABLE, is_available::<D>),
            supports: present(D::SUPPORTS, supports::<D>),
            destroy: Some(destroy::<D>),
            device: tables.device.as_ref().map_or(ptr::null(), ptr::from_ref),
            memory: tables.memory.as_ref().map_or(ptr::null(), ptr::from_ref),
            transfer: tables.transfer.as_ref().map_or(ptr::null(), ptr::from_ref),
            exec: tables.exec.as_ref().map_or(ptr::null(), ptr::from_ref),
            comm: tables.comm.as_ref().map_or(ptr::null(), ptr::from_ref),
            ..sys::DTL_BACKEND_VTABLE_INIT
        };
        let this = Box::into_raw(driver);
        let mut handle = sys::DTL_BACKEND_NULL;
        if let Err(error) = register(name, &raw const table, this.cast(), &raw mut handle) {
            // SAFETY: after a failure the library does not keep the pointer, nor calls `destroy`.
            drop(unsafe { Box::from_raw(this) });
            return Err(error);
        }
        Ok(handle)
    }
}

slots! {
    fn is_available<Driver>(
        driver, out_yes: Out<'_, i32>, why: slot::Address<*mut c_char>, cap: u64,
    ) {
        let reason = function_of(D::UNAVAILABLE)?(driver)?;
        if let Some(reason) = &reason {
            // SAFETY: `why` has `cap` writable bytes.
            unsafe { copy_text(reason, why.0, slot::size(cap)) };
        }
        out_yes.set_bool(reason.is_none());
        Ok(())
    }
    fn supports<Driver>(driver, feature: Text<'_>, out_yes: Out<'_, i32>) {
        let feature = feature.get("feature")?.unwrap_or_default();
        out_yes.set_bool(function_of(D::SUPPORTS)?(driver, feature)?);
        Ok(())
    }
}

/// Copies a text and a NUL, as much as there is room for.
///
/// # Safety
/// `into` must have `room` writable bytes.
unsafe fn copy_text(text: &str, into: *mut c_char, room: usize) {
    let Some(most) = room.checked_sub(1) else { return };
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    let end = end.unwrap_or_default();
    // SAFETY: the room has `end` bytes and one more, and so has the text `end`.
    unsafe { ptr::copy_nonoverlapping(text.as_ptr().cast(), into, end) };
    // SAFETY: the room has `end` bytes and one more.
    unsafe { into.wrapping_add(end).write(0) };
}

/// Slot `destroy`: drops the driver.
unsafe extern "C" fn destroy<D: Driver>(this: *mut c_void) {
    // SAFETY: the pointer of `Table::pass`, which the library gives up with this call.
    let driver = unsafe { Box::from_raw(this.cast::<D>()) };
    // Nobody gets the text of a panic in the drop; the panic hook has written it.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        #[cfg(feature = "program")]
        crate::backend::drop_driver(driver);
        #[cfg(not(feature = "program"))]
        drop(driver);
    }));
}

/// Writes a text into a field of a struct, cut to its size, with a NUL.
pub fn set_text(field: &mut [c_char], text: &str) {
    // SAFETY: the field has this many bytes.
    unsafe { copy_text(text, field.as_mut_ptr(), field.len()) };
}
