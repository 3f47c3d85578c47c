//! Target `tcp`: the bootstrap and the messages of plugin tcp, by `tcp.c`.

unsafe extern "C" {
    fn parser_tcp(data: *const u8, size: usize);
}

/// The first byte chooses: bootstrap of rank 0, answer of rank 0, the other ranks, messages.
pub(crate) fn tcp(data: &[u8]) {
    // The sockets of the target have room for it.
    let data = data.get(..60_000).unwrap_or(data);
    // SAFETY: the function reads `size` bytes, which the slice has.
    unsafe { parser_tcp(data.as_ptr(), data.len()) };
}
