//! A value that is made at its first use, by one thread. A failure leaves it unmade.

use crate::error::Result;
use crate::sys::sync::lock::Mutex;
use std::sync::OnceLock;

/// A value that is made at its first use.
pub struct TryOnce<T> {
    value: OnceLock<T>,
    /// Held while it is made.
    making: Mutex<()>,
}

impl<T> Default for TryOnce<T> {
    fn default() -> Self {
        TryOnce { value: OnceLock::new(), making: Mutex::new(()) }
    }
}

impl<T> TryOnce<T> {
    /// The value, if it was made.
    pub fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// The value, which `make` makes if that has not been done.
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

    /// Takes the value out, if it was made.
    pub fn take(&mut self) -> Option<T> {
        self.value.take()
    }
}
