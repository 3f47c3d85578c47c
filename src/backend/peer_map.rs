//! Sparse map from ranks to values: a rank without a value costs four bytes.
//!
//! In a job with thousands of ranks, a rank exchanges messages with few others. The value for a
//! peer is created with the first message between the two ranks. Values are never removed, because
//! ranks that have exchanged messages are likely to do so again.

/// Sparse map from ranks to values, for a rank that communicates with few other ranks.
pub struct PeerMap<T> {
    /// For each rank, the index of its value in `values` plus 1, or 0 if the rank has no value. The
    /// vector is zero-initialized, so the operating system does not allocate memory for pages that
    /// are never written.
    places: Vec<u32>,
    values: Vec<T>,
}

/// Number of bytes that the map uses for a rank without a value.
pub const BYTES_PER_RANK: usize = size_of::<u32>();

impl<T: Default> PeerMap<T> {
    /// Creates an empty map for ranks 0 to `ranks` - 1.
    pub fn new(ranks: usize) -> Self {
        PeerMap { places: vec![0; ranks], values: Vec::new() }
    }

    /// Returns the number of ranks that the map covers.
    pub fn ranks(&self) -> usize {
        self.places.len()
    }

    /// Returns the value of `rank`, or `None` if the rank has no value.
    pub fn get(&self, rank: usize) -> Option<&T> {
        self.values.get((*self.places.get(rank)? as usize).wrapping_sub(1))
    }

    /// Returns the value of `rank`, or `None` if the rank has no value.
    pub fn get_mut(&mut self, rank: usize) -> Option<&mut T> {
        self.values.get_mut((*self.places.get(rank)? as usize).wrapping_sub(1))
    }

    /// Returns the value of `rank`, creating it if necessary; `None` if `rank` is out of range.
    #[inline]
    pub fn make(&mut self, rank: usize) -> Option<&mut T> {
        if *self.places.get(rank)? == 0 {
            self.add(rank);
        }
        self.get_mut(rank)
    }

    #[cold]
    fn add(&mut self, rank: usize) {
        self.values.push(T::default());
        // There are at most as many values as ranks, and rank numbers have 32 bits.
        if let (Some(place), Ok(index)) =
            (self.places.get_mut(rank), u32::try_from(self.values.len()))
        {
            *place = index;
        }
    }

    /// Iterates over all values, in the order of their creation.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.values.iter()
    }

    /// Iterates over all values, in the order of their creation.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.values.iter_mut()
    }
}

#[cfg(test)]
#[path = "tests/peer_map.rs"]
mod tests;
