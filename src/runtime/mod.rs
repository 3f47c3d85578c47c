//! The safe middle: nouns, registry, choice, generic algorithms. Names no backend, holds no unsafe.
#![forbid(unsafe_code)]

pub mod backend;
pub mod launch;
