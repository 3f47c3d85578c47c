//! Imports of the named tests: safe wrappers, results, comparisons.

pub(crate) use crate::kit::calls::*;
pub(crate) use crate::kit::catalog::{Between, Body, OfKind, functions, named};
pub(crate) use crate::kit::exec_calls::*;
pub(crate) use crate::kit::outcome::*;
pub(crate) use crate::kit::rank::{Flight, Got, Rank, message};
pub(crate) use crate::kit::subject::*;
pub(crate) use crate::kit::win::Win;
pub(crate) use dtl_sys::*;
pub(crate) use std::ptr;
pub(crate) use std::sync::Mutex;
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
pub(crate) use std::thread;
pub(crate) use std::time::{Duration, Instant};
