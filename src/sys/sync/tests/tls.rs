//! Tests of `tls`.

#[test]
fn each_thread_has_its_own() {
    let threads: Vec<_> = (1..5_usize)
        .map(|n| {
            std::thread::spawn(move || {
                assert!(super::get().is_null());
                super::set(std::ptr::without_provenance(n));
                std::thread::yield_now();
                let seen = super::get().addr();
                super::set(std::ptr::null());
                seen == n
            })
        })
        .collect();
    assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
}
