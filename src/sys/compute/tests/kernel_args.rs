//! Tests of `kernel_args`.

use super::*;
use proptest::prelude::*;

fn region(bytes: &[u8]) -> Region {
    // SAFETY: the slice outlives the test's use of the region, which only reads.
    unsafe { Region::new(bytes.as_ptr().cast_mut().cast(), bytes.len()) }
}

proptest! {
    #[test]
    fn copies_are_faithful_and_aligned(
        args in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 0..24),
    ) {
        let regions: Vec<_> = args.iter().map(|arg| region(arg)).collect();
        let pack = ArgPack::copy_of(&regions).unwrap();
        let (mut space, mut spill) = ([Addr::NULL; INLINE_ARGS], Vec::new());
        let pointers = pack.pointers(&mut space, &mut spill);
        prop_assert_eq!(pointers.len(), args.len());
        for (pointer, arg) in pointers.iter().zip(&args) {
            prop_assert_eq!(pointer.get() % ALIGN, 0);
            // SAFETY: the pack holds as many bytes there as the argument has.
            let copy = unsafe { std::slice::from_raw_parts(pointer.ptr().cast::<u8>(),
                arg.len()) };
            prop_assert_eq!(copy, &arg[..]);
        }
    }
}
