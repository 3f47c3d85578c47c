//! Random numbers, which all ranks draw alike.

/// Generator of random numbers (xorshift64*).
pub(crate) struct Draw(u64);

impl Draw {
    /// Creates a generator. Equal seeds give equal numbers.
    pub(crate) fn new(seed: u64) -> Draw {
        Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns the next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 33) % end
    }
}
