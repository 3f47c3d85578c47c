//! Communicators: opening, describing, deriving new ones, revoking.

use crate::handle::owner;
use crate::text::c_string;
use crate::{Result, call, read_text, sys};
use std::ptr;

/// Parameters for opening a communicator. The default is kind "auto", with rank and size from the
/// launcher.
#[derive(Debug, Clone, Copy, Default)]
pub struct Open<'a> {
    /// Kind of the communicator; empty = "auto".
    pub kind: &'a str,
    /// Rank and size; `None` selects the values from the launcher's environment.
    pub place: Option<(i32, i32)>,
    /// Job name, which is the same on all ranks of the job; `None` selects the name from the
    /// launcher's environment.
    pub job: Option<&'a str>,
    /// Time limit of each blocking call in nanoseconds; 0 selects the value of DTL_TIMEOUT, or no
    /// limit if this variable is not set.
    pub timeout_ns: u64,
    /// DTL_COMM_DETERMINISTIC and other flags, ORed.
    pub flags: u64,
    /// Parent communicator; required by kinds "nccl" and "rdma".
    pub over: Option<&'a Comm>,
}

owner! {
    /// A group of ranks that exchange messages.
    ///
    /// Blocking messages and collectives borrow their buffers; the nonblocking ones are methods of
    /// a [`Scope`](crate::Scope).
    Comm, dtl_comm_t, dtl_comm_destroy
}

impl Comm {
    /// Opens a communicator. Collective.
    ///
    /// # Errors
    /// See `dtl_comm_open`.
    pub fn open(how: &Open) -> Result<Comm> {
        const CALL: &str = "dtl_comm_open";
        let kind = c_string(CALL, "kind", if how.kind.is_empty() { "auto" } else { how.kind })?;
        let job = how.job.map(|job| c_string(CALL, "job", job)).transpose()?;
        let (rank, size) = how.place.unwrap_or((0, 0));
        let desc = sys::dtl_comm_desc_t {
            flags: how.flags,
            kind: kind.as_ptr(),
            rank,
            size,
            job: job.as_ref().map_or(ptr::null(), |job| job.as_ptr()),
            timeout_ns: how.timeout_ns,
            over: how.over.map_or(sys::DTL_COMM_NULL, Comm::raw),
            ..sys::DTL_COMM_DESC_INIT
        };
        let mut handle = sys::DTL_COMM_NULL;
        // SAFETY: the description and what it points to live through the call; the output is a local.
        unsafe { call!(dtl_comm_open(&raw const desc, &raw mut handle)) }?;
        Ok(Comm::from_raw(handle))
    }

    /// Returns the world communicator. It lives until the library is finalized, even if the
    /// returned value is dropped.
    ///
    /// # Errors
    /// See `dtl_comm_get_world`.
    pub fn world() -> Result<Comm> {
        let mut handle = sys::DTL_COMM_NULL;
        // SAFETY: the output is a local.
        unsafe { call!(dtl_comm_get_world(&raw mut handle)) }?;
        Ok(Comm::from_raw(handle))
    }

    /// Creates a communicator whose ranks are threads of this process. Returns one [`Comm`] for
    /// each rank, in rank order.
    ///
    /// # Errors
    /// See `dtl_comm_threads`.
    pub fn threads(size: i32, timeout_ns: u64) -> Result<Vec<Comm>> {
        let mut handles = vec![sys::DTL_COMM_NULL; size.max(1) as usize];
        // SAFETY: there is room for `size` handles.
        unsafe { call!(dtl_comm_threads(size, timeout_ns, handles.as_mut_ptr())) }?;
        Ok(handles.into_iter().map(Comm::from_raw).collect())
    }

    /// Returns the rank of this process.
    ///
    /// # Errors
    /// See `dtl_comm_rank`.
    pub fn rank(&self) -> Result<i32> {
        let mut rank = 0;
        // SAFETY: the output is a local.
        unsafe { call!(dtl_comm_rank(self.raw(), &raw mut rank)) }?;
        Ok(rank)
    }

    /// Returns the number of ranks.
    ///
    /// # Errors
    /// See `dtl_comm_size`.
    pub fn size(&self) -> Result<i32> {
        let mut size = 0;
        // SAFETY: the output is a local.
        unsafe { call!(dtl_comm_size(self.raw(), &raw mut size)) }?;
        Ok(size)
    }

    /// Returns a description of the communicator.
    ///
    /// # Errors
    /// See `dtl_comm_info`.
    pub fn info(&self) -> Result<sys::dtl_comm_info_t> {
        let mut info = sys::DTL_COMM_INFO_INIT;
        // SAFETY: the output is a local with its size.
        unsafe { call!(dtl_comm_info(self.raw(), &raw mut info)) }?;
        Ok(info)
    }

    /// Returns a string that states, for each rank, where it runs and what its latest operations
    /// are.
    ///
    /// # Errors
    /// See `dtl_comm_dump`.
    pub fn dump(&self) -> Result<String> {
        read_text("dtl_comm_dump", |buf, cap, out_len| {
            // SAFETY: `read_text` passes `cap` writable bytes and a place for the length.
            unsafe { sys::dtl_comm_dump(self.raw(), buf, cap, out_len) }
        })
    }

    /// Duplicates the communicator. The duplicate has the same ranks, and its messages match only
    /// receives on the duplicate. Collective.
    ///
    /// # Errors
    /// See `dtl_comm_dup`.
    pub fn dup(&self) -> Result<Comm> {
        let mut handle = sys::DTL_COMM_NULL;
        // SAFETY: the output is a local.
        unsafe { call!(dtl_comm_dup(self.raw(), &raw mut handle)) }?;
        Ok(Comm::from_raw(handle))
    }

    /// Splits the communicator into one communicator for each color. A rank that passes `None` gets
    /// none. Collective.
    ///
    /// # Errors
    /// See `dtl_comm_split`.
    pub fn split(&self, color: Option<i32>, key: i32) -> Result<Option<Comm>> {
        let (color, mut handle) = (color.unwrap_or(sys::DTL_UNDEFINED), sys::DTL_COMM_NULL);
        // SAFETY: the output is a local.
        unsafe { call!(dtl_comm_split(self.raw(), color, key, &raw mut handle)) }?;
        Ok((handle != sys::DTL_COMM_NULL).then(|| Comm::from_raw(handle)))
    }

    /// Registers a buffer that is used again and again.
    ///
    /// # Errors
    /// See `dtl_comm_register`.
    ///
    /// # Safety
    /// The `len` bytes at `buffer` must stay allocated until [`Comm::deregister_buffer`] is called
    /// or the communicator is destroyed.
    pub unsafe fn register_buffer(&self, buffer: *mut u8, len: usize) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe { call!(dtl_comm_register(self.raw(), buffer.cast(), len as u64)) }
    }

    /// Ends the registration of a buffer.
    ///
    /// # Errors
    /// See `dtl_comm_deregister`.
    pub fn deregister_buffer(&self, buffer: *const u8) -> Result<()> {
        // SAFETY: the address is only compared.
        unsafe { call!(dtl_comm_deregister(self.raw(), buffer.cast_mut().cast())) }
    }

    /// Revokes the communicator: all waiting operations on it end, on every rank, with
    /// DTL_ERROR_REVOKED. Not collective.
    ///
    /// # Errors
    /// See `dtl_comm_revoke`.
    pub fn revoke(&self) -> Result<()> {
        call!(dtl_comm_revoke(self.raw()))
    }

    /// Returns a communicator of the ranks that survived a failure. Collective over the survivors.
    ///
    /// # Errors
    /// See `dtl_comm_shrink`.
    pub fn shrink(&self) -> Result<Comm> {
        let mut handle = sys::DTL_COMM_NULL;
        // SAFETY: the output is a local.
        unsafe { call!(dtl_comm_shrink(self.raw(), &raw mut handle)) }?;
        Ok(Comm::from_raw(handle))
    }

    /// Returns a communicator of these ranks and `new_ranks` more, whose processes the launcher
    /// starts. Collective.
    ///
    /// # Errors
    /// See `dtl_comm_grow`.
    pub fn grow(&self, new_ranks: i32) -> Result<Comm> {
        let mut handle = sys::DTL_COMM_NULL;
        // SAFETY: the output is a local.
        unsafe { call!(dtl_comm_grow(self.raw(), new_ranks, 0, &raw mut handle)) }?;
        Ok(Comm::from_raw(handle))
    }
}
