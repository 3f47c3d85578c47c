//! Value that one thread creates at its first use. After a failed attempt the next use tries again.

use crate::error::Result;
use crate::sys::sync::lock::Mutex;
use std::sync::OnceLock;

/// Value that is created at its first use.
pub struct TryOnce<T> {
    value: OnceLock<T>,
    /// Lock held while the value is created.
    making: Mutex<()>,
}

impl<T> Default for TryOnce<T> {
    fn default() -> Self {
        TryOnce { value: OnceLock::new(), making: Mutex::new(()) }
    }
}

impl<T> TryOnce<T> {
    /// Returns the value if it was created.
    pub fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// Returns the value. Calls `make` to create the value if that has not succeeded before.
    #[inline]
    pub fn get_or_make(&self, make: impl FnOnce() -> Result<T>) -> Result<&T> {
        if let Some(value) = self.value.get() {
            return Ok(value);
        }
        let _making = self.making.lock();
        if let Some(value) = self.value.get() {
            return Ok(value);
        }
        let value = make()?;
        Ok(self.value.get_or_init(|| value))
    }

    /// Removes and returns the value if it was created.
    pub fn take(&mut self) -> Option<T> {
        self.value.take()
    }
}
