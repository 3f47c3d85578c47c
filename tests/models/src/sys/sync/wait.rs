//! Backoff that sleeps at once, because the models test sleeping.

pub struct FutexBackoff;

impl FutexBackoff {
    pub fn new(_is_oversubscribed: bool) -> Self {
        FutexBackoff
    }

    pub fn pause(&mut self) -> bool {
        false
    }
}
