//! Value that is created at its first use, by only one thread. A failed creation is retried at the
//! next use.

use crate::sys::sync::lock::Mutex;
use std::sync::OnceLock;

/// Value that is created on first use; a failed creation is retried.
pub struct TryOnce<T> {
    value: OnceLock<T>,
    /// Lock held while a thread creates the value.
    making: Mutex<()>,
}

impl<T> Default for TryOnce<T> {
    fn default() -> Self {
        TryOnce { value: OnceLock::new(), making: Mutex::new(()) }
    }
}

impl<T> TryOnce<T> {
    /// Returns the value; `None` if it has not been created.
    pub fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// Returns the value. If the value does not exist, calls `make` to create it; returns the error
    /// if `make` fails.
    pub fn get_or_make<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
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

    /// Removes and returns the value; `None` if it has not been created.
    pub fn take(&mut self) -> Option<T> {
        self.value.take()
    }
}
