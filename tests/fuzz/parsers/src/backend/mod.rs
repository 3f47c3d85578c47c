//! The parts of `backend` that the targets reach, and the target `words`.

pub(crate) mod bootstrap;
#[path = "../../../../../src/backend/plugin/elf.rs"]
pub(crate) mod elf;
#[path = "../../../../../src/backend/p2p_protocol/frame.rs"]
mod frame;
#[path = "../../../../../src/backend/host/mod.rs"]
pub(crate) mod host;
#[path = "../../../../../src/backend/kernel_cache.rs"]
mod kernel_cache;
#[path = "../../../../../src/backend/os_error.rs"]
mod os_error;
#[path = "../../../../../src/runtime/comm/rma/active_messages/wire_format.rs"]
mod wire_format;

/// Headers of messages: what is accepted is written again as the same words.
pub(crate) fn words(data: &[u8]) {
    let words = bootstrap::records::words_of(data);
    let Some((&len, words)) = words.split_first() else { return };
    if let Some((&head, _)) = words.split_first_chunk::<4>() {
        if let Some(header) = frame::Header::of(head, len) {
            assert_eq!(header.words(), head);
            assert!(len >= frame::HEADER as u64 && len <= frame::FRAME as u64);
        }
    }
    if let Some((&head, _)) = words.split_first_chunk::<3>() {
        if let Some(header) = wire_format::Head::parse(head) {
            // Byte 3 of the first word is not used.
            assert_eq!(header.words(), [head[0] & !(0xFF << 24), head[1], head[2]]);
        }
    }
    bootstrap::record(words);
}
