//! Tests of `address`.

use super::*;

fn one(name: &str, address: &str) -> Interface {
    Interface { name: name.to_owned(), address: address.parse().expect("an address") }
}

#[test]
fn the_likeliest_addresses_come_first() {
    let all = [
        one("lo", "127.0.0.1"),
        one("docker0", "172.17.0.1"),
        one("eth0", "fe80::1"),
        one("eth0", "10.0.0.7"),
        one("ib0", "fd00::7"),
        one("ib0", "192.168.4.7"),
    ];
    let found: Vec<String> = in_order(&all).iter().map(ToString::to_string).collect();
    assert_eq!(found, ["10.0.0.7", "192.168.4.7", "fd00::7"]);
    assert_eq!(in_order(&all[..1]), [IpAddr::V4(Ipv4Addr::LOCALHOST)]);
    assert_eq!(named_ones(&all, "ib0").expect("there").len(), 2);
    let error = named_ones(&all, "ib1").expect_err("not there");
    assert!(
        error.text().starts_with("address (DTL_RDMA_ADDRESS) is \"ib1\"")
            && error.text().contains("172.17.0.1 (docker0), fe80::1 (eth0), 10.0.0.7 (eth0)"),
        "{error}"
    );
    assert!(named_ones(&all, "fe80::1").expect_err("link-local").text().contains("link-local"));
}

#[test]
fn addresses_survive_the_way_and_no_way_leads_back() {
    let at = |node, everywhere, list: &[&str]| Address {
        node,
        port: 4711,
        is_everywhere: everywhere,
        addresses: list.iter().map(|text| text.parse().expect("an address")).collect(),
    };
    let (here, there) =
        (at(1, true, &["10.0.0.1", "172.17.0.1"]), at(2, true, &["10.0.0.2", "172.17.0.1"]));
    assert_eq!(Address::parse(&there.words()), there);
    let socket_addrs = |to: &Address, from| {
        to.socket_addrs(from).iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(socket_addrs(&there, &here), "10.0.0.2:4711");
    assert_eq!(socket_addrs(&here, &here), "127.0.0.1:4711 10.0.0.1:4711 172.17.0.1:4711");
    let six = at(2, false, &["fd00::2"]);
    assert_eq!(
        (socket_addrs(&six, &here), Address::parse(&six.words())),
        ("[fd00::2]:4711".to_owned(), six)
    );
}
