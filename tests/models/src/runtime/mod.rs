//! What the modelled files find under `crate::runtime`.

pub mod comm;
pub mod policy;

/// What a board gives.
pub mod backend {
    use crate::sys::buf::Region;

    #[derive(Clone, Copy)]
    pub struct Post {
        pub what: u32,
        pub data: Region,
    }
}
