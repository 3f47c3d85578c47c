//! The named tests, a file for each part of the interface. A test is one short function; its name
//! and one line about it are in the table at the top of its file, with the rule of the header that
//! it comes from.

pub(crate) mod abi;
pub(crate) mod abi_answers;
pub(crate) mod abi_calls;
pub(crate) mod abi_windows;
pub(crate) mod collective;
pub(crate) mod device;
pub(crate) mod device_info;
pub(crate) mod event;
pub(crate) mod executor;
pub(crate) mod kernel;
pub(crate) mod leak;
pub(crate) mod life;
pub(crate) mod matching;
pub(crate) mod memory;
pub(crate) mod memory_handles;
pub(crate) mod memory_kinds;
pub(crate) mod memory_stream;
pub(crate) mod module;
pub(crate) mod open;
pub(crate) mod p2p;
pub(crate) mod p2p_more;
pub(crate) mod placement;
pub(crate) mod presence;
pub(crate) mod slots;
pub(crate) mod stream;
pub(crate) mod stream_wait;
pub(crate) mod transfer;
pub(crate) mod transfer_pitched;
pub(crate) mod win;
pub(crate) mod win_atomics;
pub(crate) mod win_life;
pub(crate) mod window;
pub(crate) mod wire;
