//! Hash with equal results in every process and every build (FNV-1a), for names and for detecting
//! damage. The hash is not cryptographic: collisions are easy to construct.

/// Returns the 64-bit FNV-1a hash of `bytes`.
pub fn of<'a>(bytes: impl IntoIterator<Item = &'a u8>) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
    bytes.into_iter().fold(0xCBF2_9CE4_8422_2325, step)
}

#[cfg(test)]
#[path = "tests/fnv.rs"]
mod tests;
