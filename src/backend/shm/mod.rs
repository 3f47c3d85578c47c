//! Ranks of one node as processes that share memory.
mod ring;
mod segment;
