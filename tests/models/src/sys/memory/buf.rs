//! Regions of the library over the words of `shm_segment`: whole words only, with every access
//! tracked by loom.

use crate::sys::sync::AtomicU64;
use loom::cell::UnsafeCell;

#[derive(Default)]
pub struct Place {
    pub word: AtomicU64,
    pub bytes: UnsafeCell<u64>,
}

// SAFETY: loom sees every access to the cell and fails the model if two are not ordered.
unsafe impl Sync for Place {}

/// Region that is valid as long as the `SharedMapping` that contains it.
#[derive(Clone, Copy)]
pub struct Region {
    places: *const Place,
    len: usize,
}

impl Region {
    pub const EMPTY: Region = Region { places: std::ptr::null(), len: 0 };

    pub fn over(places: &[Place]) -> Region {
        Region { places: places.as_ptr(), len: 8 * places.len() }
    }

    pub fn len(self) -> usize {
        self.len
    }

    pub fn part(self, offset: usize, len: usize) -> Region {
        assert!(offset % 8 == 0 && offset + len <= self.len, "a part outside of its region");
        Region { places: self.places.wrapping_add(offset / 8), len }
    }

    fn place(&self, index: usize) -> &Place {
        assert!(8 * index < self.len);
        // SAFETY: inside, and the models keep the memory while they use regions of it.
        unsafe { &*self.places.wrapping_add(index) }
    }

    pub fn read(&self, index: usize) -> u64 {
        // SAFETY: loom fails the model if somebody writes it meanwhile.
        self.place(index).bytes.with(|at| unsafe { *at })
    }

    pub fn write(&self, index: usize, value: u64) {
        // SAFETY: loom fails the model if somebody else uses it meanwhile.
        self.place(index).bytes.with_mut(|at| unsafe { *at = value });
    }

    pub fn copy_across(self, source: Region) {
        self.copy_from(source);
    }

    pub fn copy_nt(self, source: Region) {
        self.copy_from(source);
    }

    pub fn copy_from(self, source: Region) {
        for index in 0..self.len.min(source.len) / 8 {
            self.write(index, source.read(index));
        }
    }
}
