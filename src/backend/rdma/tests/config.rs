//! Tests that configuration values are taken from the C struct and from environment variables, and
//! that invalid values are rejected.

use super::*;
use crate::abi::status::{DTL_ERROR_INCOMPATIBLE_ABI, DTL_ERROR_INVALID_ARGUMENT};

/// Value of DTL_RDMA_CONFIG_INIT.
const OPEN: dtl_rdma_config_t = dtl_rdma_config_t {
    struct_size: size_of::<dtl_rdma_config_t>() as u32,
    reserved: 0,
    flags: 0,
    devices: std::ptr::null(),
    meeting: std::ptr::null(),
    address: std::ptr::null(),
    rails: -1,
    queues: -1,
    gid_index: -1,
    service_level: -1,
    traffic_class: -1,
    timeout: -1,
    retries: -1,
    receiver_retries: -1,
    mtu: -1,
    pkey_index: -1,
    depth: -1,
    inline_bytes: -1,
    completion: 0,
    rendezvous: 0,
    device_memory: 0,
    silence_ms: -1,
    cache_bytes: -1,
    reconnect_ms: -1,
};

fn resolve(raw: &dtl_rdma_config_t, variables: &[(&'static str, &str)]) -> Result<Config> {
    let given = take(Addr::new(std::ptr::from_ref(raw).cast_mut().cast()))?;
    let variables = variables.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    Sources { given, variables }.config()
}

/// Checks that the configuration is rejected as an invalid argument, and returns the error message.
fn refused(raw: &dtl_rdma_config_t, variables: &[(&'static str, &str)]) -> String {
    let error = resolve(raw, variables).unwrap_err();
    assert_eq!(error.status(), DTL_ERROR_INVALID_ARGUMENT, "{error}");
    error.text().to_owned()
}

const ALL: [(&str, &str); 21] = [
    ("DTL_RDMA_DEVICES", "mlx5_0:1, mlx5_1"),
    ("DTL_RDMA_RAILS", "2"),
    ("DTL_RDMA_QUEUES", "4"),
    ("DTL_RDMA_GID_INDEX", "3"),
    ("DTL_RDMA_SERVICE_LEVEL", "5"),
    ("DTL_RDMA_TRAFFIC_CLASS", "106"),
    ("DTL_RDMA_TIMEOUT", "14"),
    ("DTL_RDMA_RETRIES", "6"),
    ("DTL_RDMA_RECEIVER_RETRIES", "0"),
    ("DTL_RDMA_MTU", "2048"),
    ("DTL_RDMA_PKEY_INDEX", "65535"),
    ("DTL_RDMA_DEPTH", "64"),
    ("DTL_RDMA_INLINE_BYTES", "0"),
    ("DTL_RDMA_COMPLETION", "event"),
    ("DTL_RDMA_RENDEZVOUS", "read"),
    ("DTL_RDMA_DEVICE_MEMORY", "dmabuf"),
    ("DTL_RDMA_CACHE_BYTES", "512M"),
    ("DTL_RDMA_MEETING", "tcp:[fe80::1]:7000"),
    ("DTL_RDMA_ADDRESS", "ib0"),
    ("DTL_RDMA_SILENCE_MS", "800"),
    ("DTL_RDMA_RECONNECT_MS", "0"),
];

/// Returns the configuration that results if neither the C struct nor an environment variable sets
/// a value.
fn usual() -> Config {
    Config {
        devices: Vec::new(),
        rails: 1,
        queues: 1,
        gid_index: None,
        service_level: 0,
        traffic_class: 0,
        timeout: 20,
        retries: 7,
        receiver_retries: 7,
        mtu: None,
        pkey_index: 0,
        depth: DEPTH,
        inline: INLINE,
        sleeps: false,
        reads: false,
        device_memory: Devices::Staged,
        cache_bytes: 1 << 30,
        meeting: String::from("auto"),
        address: String::new(),
        silence_ms: 5000,
        reconnect_ms: 5000,
    }
}

fn of_all() -> Config {
    Config {
        devices: vec![("mlx5_0".into(), Some(1)), ("mlx5_1".into(), None)],
        rails: 2,
        queues: 4,
        gid_index: Some(3),
        service_level: 5,
        traffic_class: 106,
        timeout: 14,
        retries: 6,
        receiver_retries: 0,
        mtu: Some(2048),
        pkey_index: 65535,
        depth: 64,
        inline: 0,
        sleeps: true,
        reads: true,
        device_memory: Devices::Dmabuf,
        cache_bytes: 512 << 20,
        meeting: "tcp:[fe80::1]:7000".into(),
        address: "ib0".into(),
        silence_ms: 800,
        reconnect_ms: 0,
    }
}

#[test]
fn nothing_set_is_the_defaults_and_each_field_has_its_variable() {
    assert_eq!(resolve(&OPEN, &[]).unwrap(), usual());
    assert_eq!(resolve(&OPEN, &ALL).unwrap(), of_all());
    let names: Vec<_> = ALL.iter().map(|(name, _)| *name).collect();
    let table = settings::VARIABLES.iter().map(|(name, _)| *name);
    let table: Vec<_> =
        table.filter(|name| name.starts_with("DTL_RDMA_") && *name != "DTL_RDMA_LIBRARY").collect();
    assert!(
        table.iter().all(|name| names.contains(name)) && table.len() == names.len(),
        "{table:?}"
    );
}

#[test]
fn what_the_struct_sets_wins() {
    let given = dtl_rdma_config_t {
        devices: c"".as_ptr(),
        meeting: c"file:/shared/job".as_ptr(),
        address: c"10.0.0.5".as_ptr(),
        rails: 1,
        gid_index: 0,
        service_level: 0,
        timeout: 31,
        mtu: 256,
        completion: DTL_RDMA_POLL,
        rendezvous: DTL_RDMA_WRITE,
        cache_bytes: 0,
        reconnect_ms: 700,
        ..OPEN
    };
    let wanted = Config {
        devices: Vec::new(),
        meeting: "file:/shared/job".into(),
        address: "10.0.0.5".into(),
        rails: 1,
        gid_index: Some(0),
        service_level: 0,
        timeout: 31,
        mtu: Some(256),
        sleeps: false,
        reads: false,
        cache_bytes: 0,
        reconnect_ms: 700,
        ..of_all()
    };
    assert_eq!(resolve(&given, &ALL).unwrap(), wanted);
    // An invalid variable is ignored where the struct sets the field.
    assert!(resolve(&given, &[("DTL_RDMA_TIMEOUT", "soon")]).is_ok());
}

#[test]
fn bad_numbers_are_refused_with_name_value_and_range() {
    type Set = fn(&mut dtl_rdma_config_t, i32);
    let fields: [(&str, Set, &[i32], &str); 17] = [
        ("rails", |raw, to| raw.rails = to, &[0, 5, -2], "1 to 4"),
        ("queues", |raw, to| raw.queues = to, &[0, 5], "1 to 4"),
        ("gid_index", |raw, to| raw.gid_index = to, &[256, -2], "0 to 255"),
        ("service_level", |raw, to| raw.service_level = to, &[16], "0 to 15"),
        ("traffic_class", |raw, to| raw.traffic_class = to, &[256], "0 to 255"),
        ("timeout", |raw, to| raw.timeout = to, &[0, 32], "1 to 31"),
        ("retries", |raw, to| raw.retries = to, &[8], "0 to 7"),
        ("receiver_retries", |raw, to| raw.receiver_retries = to, &[8, i32::MIN], "0 to 7"),
        ("mtu", |raw, to| raw.mtu = to, &[0, 1500, 8192], "256, 512, 1024, 2048 or 4096"),
        ("pkey_index", |raw, to| raw.pkey_index = to, &[65536], "0 to 65535"),
        ("depth", |raw, to| raw.depth = to, &[3, 4097], "4 to 4096"),
        ("inline_bytes", |raw, to| raw.inline_bytes = to, &[1025], "0 to 1024"),
        ("silence_ms", |raw, to| raw.silence_ms = to, &[99, 600_001], "100 to 600000"),
        ("reconnect_ms", |raw, to| raw.reconnect_ms = to.into(), &[-2, 600_001], "0 to 600000"),
        ("completion", |raw, to| raw.completion = to, &[3, -1], "DTL_RDMA_POLL (poll)"),
        ("rendezvous", |raw, to| raw.rendezvous = to, &[3, -1], "DTL_RDMA_READ (read)"),
        ("device_memory", |raw, to| raw.device_memory = to, &[4, -1], "DTL_RDMA_STAGED (staged)"),
    ];
    for (name, set, values, allowed) in fields {
        for value in values {
            let mut raw = OPEN;
            set(&mut raw, *value);
            let text = refused(&raw, &[]);
            assert!(text.contains(&format!("dtl_rdma_config_t.{name} is {value}: use ")), "{text}");
            assert!(text.contains(allowed), "{text}");
        }
    }
    let text = refused(&dtl_rdma_config_t { cache_bytes: -2, ..OPEN }, &[]);
    assert!(text.contains("cache_bytes is -2: use bytes: 0, 4096"), "{text}");
    for (name, value) in
        [("RAILS", "two"), ("MTU", "4K"), ("CACHE_BYTES", "lots"), ("COMPLETION", "1")]
    {
        let (variable, _) = ALL.iter().find(|(known, _)| known.ends_with(name)).unwrap();
        let text = refused(&OPEN, &[(variable, value)]);
        assert!(text.starts_with(&format!("{variable}={value}: use ")), "{text}");
    }
}

#[test]
fn device_memory_goes_as_it_is_said_to() {
    for (constant, word, way) in [
        (DTL_RDMA_STAGED, "staged", Devices::Staged),
        (DTL_RDMA_DMABUF, "dmabuf", Devices::Dmabuf),
        (DTL_RDMA_PEERMEM, "peermem", Devices::Peermem),
    ] {
        let raw = dtl_rdma_config_t { device_memory: constant, ..OPEN };
        assert_eq!(resolve(&raw, &[]).unwrap().device_memory, way);
        assert_eq!(resolve(&OPEN, &[("DTL_RDMA_DEVICE_MEMORY", word)]).unwrap().device_memory, way);
    }
}

#[test]
fn texts_are_what_they_may_be() {
    for (name, bad) in [
        ("DTL_RDMA_DEVICES", "mlx5_0,mlx5_0"),
        ("DTL_RDMA_DEVICES", "mlx5_0:0"),
        ("DTL_RDMA_DEVICES", "mlx5_0:256"),
        ("DTL_RDMA_DEVICES", "mlx5_0,,mlx5_1"),
        ("DTL_RDMA_DEVICES", "../../etc:1"),
        ("DTL_RDMA_MEETING", "at noon"),
        ("DTL_RDMA_MEETING", "file:"),
        ("DTL_RDMA_MEETING", "tcp:host"),
        ("DTL_RDMA_MEETING", "tcp::7000"),
        ("DTL_RDMA_MEETING", "tcp:host:0"),
        ("DTL_RDMA_MEETING", "udp:host:7000"),
        ("DTL_RDMA_ADDRESS", "10.0.0.256:7"),
        ("DTL_RDMA_ADDRESS", "an-interface-with-a-long-name"),
    ] {
        let text = refused(&OPEN, &[(name, bad)]);
        assert!(text.starts_with(&format!("{name}={bad}: use ")), "{text}");
    }
    for good in ["auto", "over", "mpi", "shm", "own-kind", "file:relative", "tcp:node7:65535"] {
        assert_eq!(resolve(&OPEN, &[("DTL_RDMA_MEETING", good)]).unwrap().meeting, good);
    }
    let given = dtl_rdma_config_t { meeting: c"".as_ptr(), ..OPEN };
    assert_eq!(resolve(&given, &ALL).unwrap().meeting, "auto");
    let text = refused(&dtl_rdma_config_t { devices: c":1".as_ptr(), ..OPEN }, &[]);
    assert!(text.contains("dtl_rdma_config_t.devices is :1: use names"), "{text}");
    let text = refused(&dtl_rdma_config_t { address: c"\xFF".as_ptr(), ..OPEN }, &[]);
    assert!(text.contains("dtl_rdma_config_t.address is not UTF-8"), "{text}");
}

#[test]
fn sizes_and_flags_are_looked_at() {
    let text = refused(&dtl_rdma_config_t { flags: 2, ..OPEN }, &[]);
    assert!(text.contains("flags is 0x2: no flag is known"), "{text}");
    for size in [0, 7, 8, offset_of!(dtl_rdma_config_t, cache_bytes) as u32] {
        let text = refused(&dtl_rdma_config_t { struct_size: size, ..OPEN }, &[]);
        assert!(text.contains(&format!("dtl_rdma_config_t.struct_size is {size}")), "{text}");
    }
    #[repr(C)]
    struct Longer(dtl_rdma_config_t, u64);
    let mut longer = Longer(OPEN, 0);
    longer.0.struct_size = size_of::<Longer>() as u32;
    let take_it = |longer: &Longer| take(Addr::new(std::ptr::from_ref(longer).cast_mut().cast()));
    assert!(take_it(&longer).unwrap().is_empty());
    longer.1 = 1;
    assert_eq!(take_it(&longer).unwrap_err().status(), DTL_ERROR_INCOMPATIBLE_ABI);
}
