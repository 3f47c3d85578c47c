//! What the modelled files find under `crate::runtime`.

pub mod comm;
pub mod policy;

/// What a board gives.
pub mod component {
    use crate::sys::memory::buf::Region;

    #[derive(Clone, Copy)]
    pub struct Post {
        pub what: u32,
        pub data: Region,
    }

    #[derive(Clone, Copy)]
    pub struct Member {
        pub rank: i32,
        pub place: u32,
    }
}

/// Nobody traces in a model.
pub mod trace {
    pub struct Args;

    impl Args {
        pub const NONE: Args = Args;

        pub fn elements(self, _: u64, _: i32) -> Args {
            self
        }

        pub fn op(self, _: i32) -> Args {
            self
        }

        pub fn peer(self, _: i32) -> Args {
            self
        }

        pub fn tag(self, _: i32) -> Args {
            self
        }

        pub fn comm(self, _: u64) -> Args {
            self
        }
    }

    pub fn is_on() -> bool {
        false
    }

    pub fn operation_begin(_: u64, _: &'static str, _: &Args) {}

    pub fn operation_end(_: u64, _: &'static str) {}
}
