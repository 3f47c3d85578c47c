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
//! - [`driver`]: backends written in Rust. A plugin uses only this module, without the crate's
//!   default feature `program`.
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

/// Pages for users: the documentation tests compile and run their programs.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/how-to/write-rust.md")]
#[doc = include_str!("../../../../docs/how-to/write-a-backend-in-rust.md")]
struct Pages;

#[cfg(feature = "program")]
mod backend;
#[cfg(feature = "program")]
mod buffer;
#[cfg(feature = "program")]
mod collective;
#[cfg(feature = "program")]
mod comm;
pub mod driver;
#[cfg(feature = "program")]
mod dtype;
#[cfg(feature = "program")]
mod element;
mod error;
#[cfg(feature = "program")]
mod handle;
#[cfg(feature = "program")]
pub mod interop;
#[cfg(feature = "program")]
mod lend;
#[cfg(feature = "program")]
mod library;
#[cfg(feature = "program")]
mod memory;
#[cfg(feature = "program")]
mod message;
#[cfg(feature = "program")]
mod module;
#[cfg(feature = "program")]
mod operation;
#[cfg(feature = "program")]
mod persistent;
#[cfg(feature = "program")]
mod policy;
#[cfg(feature = "program")]
mod registry;
#[cfg(feature = "program")]
mod scope;
#[cfg(feature = "program")]
mod stream;
#[cfg(feature = "program")]
mod text;
#[cfg(feature = "program")]
mod topology;
#[cfg(feature = "program")]
mod wait;
#[cfg(feature = "program")]
mod window;

#[cfg(feature = "program")]
pub use self::{
    backend::{Backend, Device, backends},
    buffer::{Buffer, BufferMut},
    collective::Blocks,
    comm::{Comm, Open},
    dtype::{Byte, Dtype, DtypeCell, Plain},
    element::{Bool, Complex, Pair},
    error::check,
    library::{Library, explain, version},
    memory::{DmaBuf, Memory},
    message::{Message, Received},
    module::{Kernel, Module, Source},
    operation::{
        BAND, BOR, BXOR, BuiltinOp, LAND, LOR, LXOR, MAX, MAXLOC, MIN, MINLOC, NO_OP, Op, Operator,
        PROD, REPLACE, SUM,
    },
    persistent::Persistent,
    policy::Policy,
    registry::{Environment, Plugin, environments, member_name, members, plugins},
    scope::{Completed, Request, Scope, scope},
    stream::{Event, Stream},
    text::{field, read_text, text_of},
    topology::{affinity, topology},
    wait::{Outcome, wait_any, wait_some},
    window::{Epoch, Window},
};
#[cfg(feature = "program")]
pub use dtl_derive::Dtype;
pub use dtl_sys as sys;
pub use error::{Error, Result, Status};
#[cfg(any(feature = "cudarc", feature = "opencl3"))]
pub use stream::Wrapped;
