//! C in, C out: each entry validates, makes one safe call, converts. Decides nothing.
//!
//! The comments on the functions are the text of `dtl.h`; the modules' order is the header's.
//!
//! What every message calls is put into a section of its own (`.text.hot.dtl`), here and in kind
//! `mpi`, so that it lies side by side in two pages instead of seven: after a large message the
//! processor has to look each of them up again.
#![allow(clippy::missing_safety_doc, reason = "the functions' C documentation is their contract")]

mod args;
mod blocks;
mod guard;
pub mod host;

pub mod runtime;

pub mod trace;

pub mod enums;

pub mod backend;

pub mod environment;

pub mod plugin;

pub mod device;

pub mod memory;
pub mod memory_host;
pub mod memory_stream;

pub mod pool;

pub mod transfer;

pub mod array;

pub mod stream;

pub mod transfer_async;

pub mod event;

pub mod executor;

pub mod module;

pub mod kernel;

pub mod policy;
pub mod policy_submit;

pub mod dispatch;
mod dispatch_own;
mod dispatch_query;
mod elements;

mod collective_args;

pub mod types;

pub mod comm;

pub mod threads;

pub mod mpi;

pub mod p2p;
pub mod p2p_on;
pub mod p2p_start;

pub mod request;

pub mod collective;

pub mod collective_start;

pub mod group;

pub mod window;

pub mod window_access;

pub mod topology;

pub mod cart;

pub mod clock;
