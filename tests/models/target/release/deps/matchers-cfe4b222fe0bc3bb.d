/work/main/tests/models/target/release/deps/matchers-cfe4b222fe0bc3bb.d: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/matchers-0.2.0/src/lib.rs

/work/main/tests/models/target/release/deps/libmatchers-cfe4b222fe0bc3bb.rmeta: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/matchers-0.2.0/src/lib.rs

/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/matchers-0.2.0/src/lib.rs:
