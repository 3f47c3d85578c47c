/work/main/tests/models/target/release/deps/scoped_tls-c74c1292e49eed3b.d: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/scoped-tls-1.0.1/src/lib.rs

/work/main/tests/models/target/release/deps/libscoped_tls-c74c1292e49eed3b.rmeta: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/scoped-tls-1.0.1/src/lib.rs

/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/scoped-tls-1.0.1/src/lib.rs:
