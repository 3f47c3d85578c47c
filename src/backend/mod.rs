//! The doers: each implements the component traits of `runtime::backend`.
