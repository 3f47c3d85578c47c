//! Safe Rust interface of libdtl, over the declarations of `dtl-sys` ([`sys`]).
//!
//! Reading order:
//! - `error`: failed calls, [`Error`]; [`check`] and [`call!`] for functions of [`sys`].
//! - `text`: C strings of the library as Rust strings.
//! - `library`: initialization and finalization ([`Library`]), versions, explanations.
//! - `handle`: ownership of the library's objects.
//! - `backend`: backends and their devices.
//! - `memory`: allocations ([`Memory`]) and copies.
//! - `stream`: streams and events.
//! - `module`: compiled source and kernels.
//! - `comm`: communicators, messages and collectives.
//! - `request`: operations in flight, with their buffers.
//! - `window`: memory that other ranks access.
//! - `registry`: plugins, environments and members of enumerations.
//! - `topology`: this node.
//!
//! Objects are destroyed when they are dropped. Using a handle whose object the library has already
//! destroyed (for example in [`Library::finalize`]) is an error, never undefined behaviour.
//!
//! # Safety
//! A buffer is never reused while an operation may still access it: operations own their buffers,
//! and the buffer of a failed operation is leaked if the library does not guarantee that it no
//! longer uses the buffer. Access to memory of the library by reference is `unsafe`, because its
//! other users (streams, devices, ranks) are not known to the compiler. Functions without a wrapper
//! are called through [`sys`], under their C contract.
//!
//! One case depends on the MPI library: if a communicator transfers its messages with an MPI
//! library, that library defines the effect of a message or collective that is longer than the
//! receiver's buffer (see `dtl_comm_recv`).
//!
//! # Example
//! ```no_run
//! # fn main() -> dtl_binding::Result<()> {
//! let library = dtl_binding::Library::init()?;
//! for backend in dtl_binding::backends()? {
//!     let devices = backend.device_count().unwrap_or(0);
//!     println!("{}: {devices} device(s)", backend.name(&library)?);
//! }
//! library.finalize()
//! # }
//! ```

mod backend;
mod comm;
mod error;
mod handle;
mod library;
mod memory;
mod module;
mod registry;
mod request;
mod stream;
mod text;
mod topology;
mod window;

pub use backend::{Backend, Device, backends};
pub use comm::{Comm, Element, Open};
pub use dtl_sys as sys;
pub use error::{Error, Result, Status, check};
pub use library::{Library, explain, version};
pub use memory::Memory;
pub use module::{Kernel, Module, Source};
pub use registry::{Environment, Plugin, environments, member_name, members, plugins};
pub use request::Request;
pub use stream::{Event, Stream};
pub use text::{field, read_text, text_of};
pub use topology::{affinity, topology};
pub use window::Window;
