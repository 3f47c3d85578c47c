//! A value for each rank that has one: four bytes for a rank without.
//!
//! A rank of a job of thousands exchanges messages with a few of the others; its value for another
//! rank is made at the first message between the two. Values are never given back: ranks that have
//! exchanged messages do so again.

/// Map from ranks to values, sized for a rank that communicates with few of the others.
pub struct PeerMap<T> {
    /// One more than the value's index; 0 = none. Zeroes, so that the system gives no memory for
    /// ranges that are only read.
    places: Vec<u32>,
    values: Vec<T>,
}

/// Bytes for a rank without a value.
pub const BYTES_PER_RANK: usize = size_of::<u32>();

impl<T: Default> PeerMap<T> {
    /// For `ranks` ranks, none of which has a value.
    #[must_use]
    pub fn new(ranks: usize) -> Self {
        PeerMap { places: vec![0; ranks], values: Vec::new() }
    }

    /// Number of ranks.
    #[inline]
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.places.len()
    }

    /// A rank's value, if it has one.
    #[inline]
    #[must_use]
    pub fn get(&self, rank: usize) -> Option<&T> {
        self.values.get((*self.places.get(rank)? as usize).wrapping_sub(1))
    }

    /// A rank's value, if it has one.
    #[inline]
    pub fn get_mut(&mut self, rank: usize) -> Option<&mut T> {
        self.values.get_mut((*self.places.get(rank)? as usize).wrapping_sub(1))
    }

    /// A rank's value, made if it has none; `None`: there is no such rank.
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
        // Not more values than ranks, whose numbers are 32 bits.
        if let (Some(place), Ok(index)) =
            (self.places.get_mut(rank), u32::try_from(self.values.len()))
        {
            *place = index;
        }
    }

    /// All values, in the order in which they were made.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.values.iter()
    }

    /// All values, in the order in which they were made.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.values.iter_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_made_on_demand_and_stay() {
        let mut sparse = PeerMap::<u8>::new(3);
        assert_eq!((sparse.get(2), sparse.get(3), sparse.ranks()), (None, None, 3));
        *sparse.make(2).expect("rank") = 7;
        *sparse.make(0).expect("rank") += 1;
        assert_eq!(
            (sparse.make(2).copied(), sparse.get(0), sparse.get(1)),
            (Some(7), Some(&1), None)
        );
        assert!(sparse.make(3).is_none() && sparse.get_mut(1).is_none());
        assert_eq!(sparse.values().copied().collect::<Vec<_>>(), [7, 1]);
        assert_eq!(size_of_val(&sparse.places[..]), 3 * BYTES_PER_RANK);
    }
}
