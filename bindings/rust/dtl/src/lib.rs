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
//! - `dtype`, `element`, `buffer`: elements, and the buffers that have them.
//! - `operation`: reduction operations.
//! - `lend`: what makes it sound to lend buffers to the library.
//! - `comm`: communicators.
//! - `message`: blocking messages.
//! - `scope`: nonblocking operations ([`scope()`]).
//! - `wait`: waiting for the first of several requests.
//! - `persistent`: messages that are started again and again, in a scope.
//! - `collective`: collectives, blocking and in a scope.
//! - `window`: memory that other ranks access, and epochs of one-sided operations.
//! - `policy`: selection of a resource for each task.
//! - `registry`: plugins, environments and members of enumerations.
//! - `topology`: this node.
//! - [`interop`]: objects of other crates, each behind a feature.
//!
//! Objects are destroyed when they are dropped. Using a handle whose object the library has already
//! destroyed (for example in [`Library::finalize`]) is an error, never undefined behaviour.
//!
//! # Safety
//! A buffer is never accessed while an operation may still use it. Blocking functions borrow their
//! buffers until they return. Nonblocking ones borrow them until a [`scope()`] ends, which ends
//! all its operations first. If a plugin's transport cannot release a buffer after a failure, the
//! call does not return: it writes the text to standard error and aborts the process. The built-in
//! kinds of communicators always release the buffers. [`Window::fenced`] does the same if a fence has
//! failed and a target cannot be locked. Access to memory of the library by reference
//! is `unsafe`, because its other users (streams, devices, ranks) are not known to the compiler.
//! Functions without a wrapper are called through [`sys`], under their C contract.
//!
//! One case depends on the MPI library: if a communicator transfers its messages with an MPI
//! library, that library defines the effect of a message or collective that is longer than the
//! receiver's buffer (see `dtl_comm_recv`).
//!
//! # Example
//! ```
//! use dtl_binding::{Comm, Library, SUM};
//!
//! # fn main() -> dtl_binding::Result<()> {
//! let library = Library::init()?;
//! let comm = Comm::world()?;
//! let mine = f64::from(comm.rank()?) + 1.0;
//! let mut sum = 0.0;
//! comm.allreduce(&mine, &mut sum, SUM)?;
//! println!("rank {} of {}: the sum is {sum}", comm.rank()?, comm.size()?);
//! library.finalize()
//! # }
//! ```

/// The page for users: its programs are compiled and run by the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/how-to/write-rust.md")]
struct Page;

/// The page for users of other crates, whose programs need their features.
#[cfg(all(doctest, feature = "cudarc", feature = "mpi", feature = "opencl3"))]
#[doc = include_str!("../../../../docs/how-to/use-rust-crates.md")]
struct CratesPage;

mod backend;
mod buffer;
mod collective;
mod comm;
mod dtype;
mod element;
mod error;
mod handle;
pub mod interop;
mod lend;
mod library;
mod memory;
mod message;
mod module;
mod operation;
mod persistent;
mod policy;
mod registry;
mod scope;
mod stream;
mod text;
mod topology;
mod wait;
mod window;

pub use backend::{Backend, Device, backends};
pub use buffer::{Buffer, BufferMut};
pub use collective::Blocks;
pub use comm::{Comm, Open};
pub use dtl_derive::Dtype;
pub use dtl_sys as sys;
pub use dtype::{Byte, Dtype, DtypeCell, Plain};
pub use element::{Bool, Complex, Pair};
pub use error::{Error, Result, Status, check};
pub use library::{Library, explain, version};
pub use memory::{DmaBuf, Memory};
pub use message::{Message, Received};
pub use module::{Kernel, Module, Source};
pub use operation::{
    BAND, BOR, BXOR, BuiltinOp, LAND, LOR, LXOR, MAX, MAXLOC, MIN, MINLOC, NO_OP, Op, Operator,
    PROD, REPLACE, SUM,
};
pub use persistent::Persistent;
pub use policy::Policy;
pub use registry::{Environment, Plugin, environments, member_name, members, plugins};
pub use scope::{Completed, Request, Scope, scope};
#[cfg(any(feature = "cudarc", feature = "opencl3"))]
pub use stream::Wrapped;
pub use stream::{Event, Stream};
pub use text::{field, read_text, text_of};
pub use topology::{affinity, topology};
pub use wait::{Ended, wait_any, wait_some};
pub use window::{Epoch, Window};
