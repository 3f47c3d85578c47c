//! Devices: the traits of the device, memory and transfer tables.

use super::slot::{Address, Fill, Out, function_of, present, size, slots};
use super::{Driver, Streams, Table};
use crate::{Result, sys};
use std::ffi::c_void;
use std::marker::PhantomData;

/// Devices of a driver (`dtl_device_vtable_t`). [`Table::devices`] adds them.
///
/// Functions are called from any thread, at the same time. They may block. They must not call the
/// library for this backend. Indexes of devices are 0 to `count`-1, but `set_current` gets what the
/// program passes.
pub trait Devices: Driver {
    /// Returns the number of devices, 0 or more.
    ///
    /// # Errors
    /// The status and text of the call that needs the number.
    fn count(&self) -> Result<i32>;

    /// Sets the current device of the calling thread, as cudaSetDevice does.
    ///
    /// # Errors
    /// DTL_ERROR_INVALID_ARGUMENT if there is no such device.
    fn set_current(&self, device: i32) -> Result;

    /// Returns the current device of the calling thread: that of the last `set_current`, or the
    /// driver's default.
    ///
    /// # Errors
    /// The status and text of the call that needs the device.
    fn current(&self) -> Result<i32>;

    /// Describes a device. The struct is zeroed; its size is set, and `numa_node` is -1 (unknown).
    /// `None`: the library reports the backend's name only.
    const INFO: Option<fn(&Self, i32, &mut sys::dtl_device_info_t) -> Result> = None;

    /// Returns the free and the total bytes of a device; 0 = unknown. `None`:
    /// [`Allocator::MEMORY_INFO`] answers.
    const MEMORY_INFO: Option<fn(&Self, i32) -> Result<(u64, u64)>> = None;

    /// Waits for all work on a device. `None`: the library waits for its streams.
    const SYNCHRONIZE: Option<fn(&Self, i32) -> Result> = None;

    /// Returns the DLPack device type and id of a device. `None`: DTL_ERROR_NOT_SUPPORTED.
    const DLPACK: Option<fn(&Self, i32) -> Result<(i32, i32)>> = None;
}

/// Size, alignment and kind of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Size in bytes, at least 1.
    pub size: usize,
    /// Alignment of the first byte in bytes, a power of two.
    pub alignment: usize,
    /// Kind, DTL_MEMORY_... or a registered kind.
    pub kind: sys::dtl_enum_word_t,
}

/// Memory of a driver (`dtl_memory_vtable_t`). [`Table::allocator`] adds it.
///
/// `alloc` and the descriptions apply to the calling thread's current device; `free` finds the
/// device by the address. Functions are called from any thread, at the same time.
///
/// # Safety
/// The library and the program access the memory by the addresses of `alloc`. So an address must be
/// that of `size` bytes with the alignment, to which nothing else refers until `free` gets it. A
/// kind that `KIND_INFO` describes as DTL_MEMORY_HOST_ACCESSIBLE must be memory that every thread
/// of the process can read and write. `POINTER_INFO` must describe existing allocations only. So the
/// implementation is `unsafe`:
/// ```compile_fail,E0200
/// use dtl_binding::Result;
/// use dtl_binding::driver::{Allocator, Driver, Extent};
/// use std::ffi::c_void;
///
/// struct Card;
/// impl Driver for Card {}
/// impl Allocator for Card {
///     fn alloc(&self, _extent: Extent) -> Result<*mut c_void> {
///         Ok(std::ptr::dangling_mut())
///     }
///     unsafe fn free(&self, _address: *mut c_void, _extent: Extent) -> Result {
///         Ok(())
///     }
/// }
/// ```
pub unsafe trait Allocator: Driver {
    /// Allocates memory, and returns its address.
    ///
    /// # Errors
    /// DTL_ERROR_NOT_SUPPORTED for an unknown kind, DTL_ERROR_OUT_OF_MEMORY if there is no memory.
    fn alloc(&self, extent: Extent) -> Result<*mut c_void>;

    /// Frees an allocation.
    ///
    /// # Errors
    /// The status and text of the call that frees it. The memory counts as freed.
    ///
    /// # Safety
    /// `address` is a result of `alloc` for this extent. It is freed once, and nothing uses the
    /// memory any more.
    unsafe fn free(&self, address: *mut c_void, extent: Extent) -> Result;

    /// Describes a kind of memory: properties, alignment and name. The struct is zeroed; its size is
    /// set. It fails with DTL_ERROR_NOT_SUPPORTED for an unknown kind. `None`: HOST is memory of the
    /// host, DEVICE memory that only this backend can access.
    const KIND_INFO: Option<
        fn(&Self, sys::dtl_enum_word_t, &mut sys::dtl_mem_kind_info_t) -> Result,
    > = None;

    /// Returns the free and the total bytes of the current device; 0 = unknown. `None`:
    /// DTL_ERROR_NOT_SUPPORTED.
    const MEMORY_INFO: Option<fn(&Self) -> Result<(u64, u64)>> = None;

    /// Describes memory that the program allocated through the driver: device, kind, base and size
    /// of the allocation around an address. It fails with DTL_ERROR_NOT_FOUND for an address that
    /// the driver does not recognise, and must not access the memory. `None`: only memory passed to
    /// `dtl_mem_adopt` is recognised.
    const POINTER_INFO: Option<fn(&Self, *const c_void, &mut sys::dtl_mem_info_t) -> Result> = None;
}

/// Destination of a copy or a fill. Only the library makes one: nothing else accesses the range until
/// the operation is done. Safe code cannot make one for another range:
/// ```compile_fail,E0451
/// use dtl_binding::driver::Target;
///
/// fn other(target: Target<'_>) -> Target<'_> {
///     Target { address: std::ptr::dangling_mut(), ..target }
/// }
/// ```
#[derive(Debug)]
pub struct Target<'a> {
    address: *mut c_void,
    kind: sys::dtl_enum_word_t,
    size: usize,
    _borrow: PhantomData<&'a mut [u8]>,
}

/// Source of a copy. Only the library makes one: nothing changes the range until the operation is
/// done.
#[derive(Debug)]
pub struct Origin<'a> {
    address: *const c_void,
    kind: sys::dtl_enum_word_t,
    size: usize,
    _borrow: PhantomData<&'a [u8]>,
}

macro_rules! range {
    ($name:ident, $pointer:ty) => {
        impl $name<'_> {
            fn new(address: $pointer, kind: sys::dtl_enum_word_t, size: usize) -> Self {
                $name { address, kind, size, _borrow: PhantomData }
            }

            /// Returns the address of the first byte.
            #[must_use]
            pub fn address(&self) -> $pointer {
                self.address
            }

            /// Returns the kind of the memory, DTL_MEMORY_HOST for memory that is not this
            /// backend's.
            #[must_use]
            pub fn kind(&self) -> sys::dtl_enum_word_t {
                self.kind
            }

            /// Returns the number of bytes, at least 1. In a two-dimensional copy, that of the
            /// rows with the gaps between them.
            #[must_use]
            pub fn size(&self) -> usize {
                self.size
            }
        }
    };
}
range!(Target, *mut c_void);
range!(Origin, *const c_void);

/// Shape of a two-dimensional copy.
#[derive(Debug, Clone, Copy)]
pub struct Rows {
    /// Bytes from one row of the destination to the next.
    pub target_pitch: usize,
    /// Bytes from one row of the source to the next.
    pub origin_pitch: usize,
    /// Bytes of a row.
    pub width: usize,
    /// Number of rows.
    pub height: usize,
}

impl Rows {
    /// Returns the number of bytes from the first to the last byte of the rows.
    fn span(&self, pitch: usize) -> usize {
        pitch.saturating_mul(self.height.saturating_sub(1)).saturating_add(self.width)
    }
}

/// Copies of a driver (`dtl_transfer_vtable_t`). [`Table::transfers`] adds them.
///
/// At least one side is memory of this backend; the other is any memory that the host can access.
/// The sides may be on any device of the backend: the address identifies it. The sizes of both
/// are equal, and the ranges do not overlap. Functions are called from any thread, at the same time.
pub trait Transfers: Driver {
    /// Copies. Returns when the copy is done.
    ///
    /// # Errors
    /// The status and text of the call that copies.
    fn copy(&self, target: Target<'_>, origin: Origin<'_>) -> Result;

    /// Copies rows. `None`: the library calls `copy` for each row.
    const COPY_2D: Option<fn(&Self, Target<'_>, Origin<'_>, Rows) -> Result> = None;

    /// Sets all bytes to a value. `None`: the library copies a filled buffer of the host.
    const FILL: Option<fn(&Self, Target<'_>, u8) -> Result> = None;
}

/// Copies in the order of a stream. [`Table::stream_transfers`] adds them.
pub trait StreamTransfers: Transfers + Streams {
    /// Queues a copy.
    ///
    /// # Errors
    /// The status and text of the call that copies.
    fn copy_async(&self, stream: &Self::Stream, target: Target<'_>, origin: Origin<'_>) -> Result;

    /// Queues the migration of memory of kind DTL_MEMORY_MANAGED to a device (-1: the host). `None`:
    /// the memory stays.
    const PREFETCH: Option<fn(&Self, &Self::Stream, Target<'_>, i32) -> Result> = None;
}

fn extent(size_bytes: u64, alignment: u64, kind: sys::dtl_enum_word_t) -> Extent {
    Extent { size: size(size_bytes), alignment: size(alignment), kind }
}

slots! {
    fn count<Devices>(driver, out: Out<'_, i32>) {
        out.set(driver.count()?);
        Ok(())
    }
    fn set<Devices>(driver, device: i32) {
        driver.set_current(device)
    }
    fn get<Devices>(driver, out: Out<'_, i32>) {
        out.set(driver.current()?);
        Ok(())
    }
    fn info<Devices>(driver, device: i32, out: Fill<'_, sys::dtl_device_info_t>) {
        function_of(D::INFO)?(driver, device, out.0)
    }
    fn device_memory_info<Devices>(
        driver, device: i32, out_free: Out<'_, u64>, out_total: Out<'_, u64>,
    ) {
        let (free, total) = function_of(D::MEMORY_INFO)?(driver, device)?;
        out_free.set(free);
        out_total.set(total);
        Ok(())
    }
    fn synchronize<Devices>(driver, device: i32) {
        function_of(D::SYNCHRONIZE)?(driver, device)
    }
    fn dlpack<Devices>(driver, device: i32, out_type: Out<'_, i32>, out_id: Out<'_, i32>) {
        let (kind, id) = function_of(D::DLPACK)?(driver, device)?;
        out_type.set(kind);
        out_id.set(id);
        Ok(())
    }
    fn alloc<Allocator>(
        driver, size_bytes: u64, alignment: u64, kind: u64, out: Out<'_, *mut c_void>,
    ) {
        out.set(driver.alloc(extent(size_bytes, alignment, kind))?);
        Ok(())
    }
    fn free<Allocator>(
        driver, address: Address<*mut c_void>, size_bytes: u64, alignment: u64, kind: u64,
    ) {
        // SAFETY: the library frees each allocation once, with its extent.
        unsafe { driver.free(address.0, extent(size_bytes, alignment, kind)) }
    }
    fn kind_info<Allocator>(driver, kind: u64, out: Fill<'_, sys::dtl_mem_kind_info_t>) {
        function_of(D::KIND_INFO)?(driver, kind, out.0)
    }
    fn memory_info<Allocator>(driver, out_free: Out<'_, u64>, out_total: Out<'_, u64>) {
        let (free, total) = function_of(D::MEMORY_INFO)?(driver)?;
        out_free.set(free);
        out_total.set(total);
        Ok(())
    }
    fn pointer_info<Allocator>(
        driver, address: Address<*const c_void>, out: Fill<'_, sys::dtl_mem_info_t>,
    ) {
        function_of(D::POINTER_INFO)?(driver, address.0, out.0)
    }
    fn copy<Transfers>(
        driver, to: Address<*mut c_void>, to_kind: u64, from: Address<*const c_void>,
        from_kind: u64, bytes: u64,
    ) {
        let target = Target::new(to.0, to_kind, size(bytes));
        driver.copy(target, Origin::new(from.0, from_kind, size(bytes)))
    }
    fn copy_2d<Transfers>(
        driver, to: Address<*mut c_void>, to_kind: u64, to_pitch: u64, from: Address<*const c_void>,
        from_kind: u64, from_pitch: u64, width: u64, height: u64,
    ) {
        let rows = Rows {
            target_pitch: size(to_pitch),
            origin_pitch: size(from_pitch),
            width: size(width),
            height: size(height),
        };
        let target = Target::new(to.0, to_kind, rows.span(rows.target_pitch));
        let origin = Origin::new(from.0, from_kind, rows.span(rows.origin_pitch));
        function_of(D::COPY_2D)?(driver, target, origin, rows)
    }
    fn fill<Transfers>(driver, to: Address<*mut c_void>, kind: u64, value: u8, bytes: u64) {
        function_of(D::FILL)?(driver, Target::new(to.0, kind, size(bytes)), value)
    }
    fn copy_async<StreamTransfers>(
        driver, stream: &D::Stream, to: Address<*mut c_void>, to_kind: u64,
        from: Address<*const c_void>, from_kind: u64, bytes: u64,
    ) {
        let target = Target::new(to.0, to_kind, size(bytes));
        driver.copy_async(stream, target, Origin::new(from.0, from_kind, size(bytes)))
    }
    fn prefetch<StreamTransfers>(
        driver, stream: &D::Stream, address: Address<*mut c_void>, kind: u64, bytes: u64,
        device: i32,
    ) {
        let target = Target::new(address.0, kind, size(bytes));
        function_of(D::PREFETCH)?(driver, stream, target, device)
    }
}

impl<D: Devices> Table<D> {
    /// Adds the devices.
    #[must_use]
    pub fn devices(mut self) -> Self {
        let table = self.tables.device.get_or_insert(sys::DTL_DEVICE_VTABLE_INIT);
        table.count = Some(count::<D>);
        table.set = Some(set::<D>);
        table.get = Some(get::<D>);
        table.info = present(D::INFO, info::<D>);
        table.memory_info = present(D::MEMORY_INFO, device_memory_info::<D>);
        table.synchronize = present(D::SYNCHRONIZE, synchronize::<D>);
        table.dlpack = present(D::DLPACK, dlpack::<D>);
        self
    }
}

impl<D: Allocator> Table<D> {
    /// Adds the memory.
    #[must_use]
    pub fn allocator(mut self) -> Self {
        let table = self.tables.memory.get_or_insert(sys::DTL_MEMORY_VTABLE_INIT);
        table.alloc = Some(alloc::<D>);
        table.free = Some(free::<D>);
        table.kind_info = present(D::KIND_INFO, kind_info::<D>);
        table.memory_info = present(D::MEMORY_INFO, memory_info::<D>);
        table.pointer_info = present(D::POINTER_INFO, pointer_info::<D>);
        self
    }
}

impl<D: Transfers> Table<D> {
    /// Adds the copies.
    #[must_use]
    pub fn transfers(mut self) -> Self {
        let table = self.tables.transfer.get_or_insert(sys::DTL_TRANSFER_VTABLE_INIT);
        table.copy = Some(copy::<D>);
        table.copy_2d = present(D::COPY_2D, copy_2d::<D>);
        table.fill = present(D::FILL, fill::<D>);
        self
    }
}

impl<D: StreamTransfers> Table<D> {
    /// Adds the copies in streams, with [`Table::transfers`] and [`Table::streams`].
    #[must_use]
    pub fn stream_transfers(self) -> Self {
        let mut all = self.transfers().streams();
        let table = all.tables.transfer.get_or_insert(sys::DTL_TRANSFER_VTABLE_INIT);
        table.copy_async = Some(copy_async::<D>);
        table.prefetch = present(D::PREFETCH, prefetch::<D>);
        all
    }
}
