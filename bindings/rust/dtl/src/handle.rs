//! Ownership of the library's objects: a handle is destroyed when its owner is dropped.

/// Defines an owner type for a handle type. The owner destroys the handle on drop.
macro_rules! owner {
    ($(#[$attribute:meta])* $name:ident, $raw:ident, $destroy:ident) => {
        $(#[$attribute])*
        ///
        /// Destroyed when dropped.
        #[derive(Debug)]
        pub struct $name {
            handle: $crate::sys::$raw,
        }

        impl $name {
            /// Takes ownership of a handle. A null handle is allowed; calls with a null handle
            /// fail.
            #[must_use]
            pub fn from_raw(handle: $crate::sys::$raw) -> Self {
                Self { handle }
            }

            /// Returns the handle, for use with the functions in [`sys`](crate::sys).
            #[must_use]
            pub fn raw(&self) -> $crate::sys::$raw {
                self.handle
            }

            /// Gives up ownership: returns the handle, which is no longer destroyed on drop.
            #[must_use]
            pub fn into_raw(self) -> $crate::sys::$raw {
                let handle = self.handle;
                std::mem::forget(self);
                handle
            }

            /// Destroys the object now. Reports a failure, which a drop cannot.
            #[doc = concat!("# Errors\nSee `", stringify!($destroy), "`. The object lives on then, without an owner.")]
            pub fn destroy(self) -> $crate::Result {
                $crate::call!($destroy(self.into_raw()))
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // A drop has nobody to report a failure to; `destroy` reports it.
                let _ = $crate::sys::$destroy(self.handle);
            }
        }
    };
}
pub(crate) use owner;
