//! The structs have the layouts of the library's sources, and the initial values of the header.
//!
//! Needs libdtl.so.0.2: DTL_LIB_DIR=$PWD/build/stage/lib cargo test -p dtl-sys.

// The library's table names its structs by the modules that declare them. Here all of these modules
// are the crate, so the table below describes the crate's structs.
mod backend {
    pub use dtl_sys::{self as environment, self as plugin, self as vtable};
}
mod comm {
    pub use dtl_sys::{self as communicator, self as rdma, self as topology, self as window};
}
mod devices {
    pub use dtl_sys::{
        self as array, self as device, self as dispatch, self as exec, self as policy,
    };
}
use dtl_sys::{self as enums, self as handle, self as runtime, self as trace};
#[expect(unused_imports, reason = "the first of these imports has every name")]
#[path = "../../../../src/abi/layouts.rs"]
mod layouts;

use dtl::abi::layouts as library;
use layouts::Described;

#[test]
fn structs_have_the_layouts_of_the_library() {
    assert!(layouts::LAYOUTS.len() > 50, "the table has only {} structs", layouts::LAYOUTS.len());
    assert_eq!(layouts::LAYOUTS.len(), library::LAYOUTS.len());
    for (ours, theirs) in layouts::LAYOUTS.iter().zip(library::LAYOUTS) {
        let structs =
            [(ours.name, ours.size, ours.align), (theirs.name, theirs.size, theirs.align)];
        assert_eq!(structs[0], structs[1]);
        let fields = ours.fields().map(|field| (field.name, field.offset, field.size));
        let expected = theirs.fields().map(|field| (field.name, field.offset, field.size));
        assert!(fields.eq(expected), "{}", ours.name);
    }
}

#[test]
fn initial_values_are_those_of_the_header() {
    const { assert!(dtl_sys::dtl_config_t::LAYOUT.is_versioned()) };
    assert_eq!(dtl_sys::DTL_CONFIG_INIT.struct_size as usize, size_of::<dtl_sys::dtl_config_t>());
    assert_eq!(dtl_sys::DTL_LAUNCH_INIT.grid, [1; 3]);
    assert_eq!(dtl_sys::DTL_RDMA_CONFIG_INIT.rails, -1);
    assert_eq!(dtl_sys::DTL_BACKEND_VTABLE_INIT.abi_version, dtl_sys::DTL_ABI_VERSION);
}
