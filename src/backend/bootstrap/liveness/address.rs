//! Addresses of a rank's control sockets: encoding in the rank's bootstrap record, and the order in
//! which other ranks try the addresses.

use crate::backend::os_error::os_error;
use crate::error::{Result, fail};
use crate::sys::os::process;
use crate::sys::os::tcp::{self, Interface};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

/// Maximum number of addresses in a rank's bootstrap record.
const MOST: usize = 3;
/// Number of 64-bit words in a rank's bootstrap record: one word with the node ID; one word with
/// the port, the number of addresses and the flag `EVERYWHERE`; two words per address.
pub(super) const WORDS: usize = 2 + 2 * MOST;
/// Flag in a rank's bootstrap record: the rank listens on all addresses of its machine.
const EVERYWHERE: u64 = 1 << 32;
/// Name prefixes of network interfaces of virtual machines and containers. The addresses of such
/// interfaces are not unique across nodes, and other nodes cannot connect to these addresses.
const INSIDE: [&str; 5] = ["docker", "virbr", "veth", "br-", "cni"];

/// Addresses on which a rank listens for control connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// ID of the rank's machine, equal for all ranks on the machine; 0 if unknown.
    pub(super) node: u64,
    port: u16,
    is_everywhere: bool,
    addresses: Vec<IpAddr>,
}

impl Address {
    /// Starts listening for control connections. `named` is the address or interface of this
    /// machine on which to listen (`None`: all addresses).
    pub(super) fn listen(named: Option<&str>) -> Result<(TcpListener, Address)> {
        let failed = |what: &str, error: &std::io::Error| {
            os_error(crate::abi::status::DTL_ERROR_UNAVAILABLE, what, error)
        };
        let all =
            tcp::interfaces().map_err(|error| failed("the addresses of this machine", &error))?;
        let (addresses, listener) = match named {
            None => (in_order(&all), tcp::listen_everywhere(0)),
            Some(name) => {
                let addresses = named_ones(&all, name)?;
                let first = addresses.first().copied().unwrap_or(Ipv4Addr::LOCALHOST.into());
                (vec![first], tcp::listen(SocketAddr::new(first, 0)))
            }
        };
        let what = || format!("listening at {}", named.unwrap_or("all addresses"));
        let listener = listener.map_err(|error| failed(&what(), &error))?;
        let port = listener.local_addr().map_err(|error| failed(&what(), &error))?.port();
        let node = process::node_id().unwrap_or(0);
        Ok((listener, Address { node, port, is_everywhere: named.is_none(), addresses }))
    }

    pub(super) fn words(&self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        let everywhere = if self.is_everywhere { EVERYWHERE } else { 0 };
        let head =
            [self.node, u64::from(self.port) | (self.addresses.len() as u64) << 16 | everywhere];
        let addresses = self.addresses.iter().flat_map(|address| {
            let bits = u128::from(mapped(*address));
            [(bits >> 64) as u64, bits as u64]
        });
        words.iter_mut().zip(head.into_iter().chain(addresses)).for_each(|(to, word)| *to = word);
        words
    }

    pub(super) fn parse(words: &[u64]) -> Address {
        let word = |at: usize| words.get(at).copied().unwrap_or(0);
        let count = (word(1) >> 16 & 0xFFFF) as usize;
        let address = |at: usize| {
            let bits = u128::from(word(2 + 2 * at)) << 64 | u128::from(word(3 + 2 * at));
            Ipv6Addr::from(bits).to_canonical()
        };
        Address {
            node: word(0),
            port: word(1) as u16,
            is_everywhere: word(1) & EVERYWHERE != 0,
            addresses: (0..count.min(MOST)).map(address).collect(),
        }
    }

    /// Returns the socket addresses of the rank with the addresses `self`, in the order in which
    /// the rank with the addresses `own` should try to connect to them.
    pub(super) fn socket_addrs(&self, own: &Address) -> Vec<SocketAddr> {
        let is_here = self.node == own.node && self.node != 0;
        let mut ways = Vec::new();
        if is_here && self.is_everywhere {
            ways.push(Ipv4Addr::LOCALHOST.into());
        }
        // An address that both machines have leads back to the connecting machine.
        ways.extend(
            self.addresses.iter().filter(|address| is_here || !own.addresses.contains(address)),
        );
        if ways.is_empty() {
            ways.clone_from(&self.addresses);
        }
        ways.dedup();
        ways.into_iter().map(|address| SocketAddr::new(address, self.port)).collect()
    }
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// Returns at most `MOST` addresses at which other ranks may reach this rank, the most likely
/// reachable address first.
fn in_order(all: &[Interface]) -> Vec<IpAddr> {
    let is_local = |address: &IpAddr| match address {
        IpAddr::V4(address) => address.is_link_local(),
        // A link-local IPv6 address requires the name of an interface of the other machine.
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    let mut usable: Vec<&Interface> = all.iter().filter(|one| !is_local(&one.address)).collect();
    let rank = |one: &Interface| {
        let is_inside = INSIDE.iter().any(|prefix| one.name.starts_with(prefix));
        (one.address.is_loopback(), is_inside, one.address.is_ipv6())
    };
    usable.sort_by_key(|one| rank(one));
    usable.iter().map(|one| one.address).take(MOST).collect()
}

fn named_ones(all: &[Interface], name: &str) -> Result<Vec<IpAddr>> {
    let is_named = |one: &&Interface| name == one.name || name.parse() == Ok(one.address);
    let found: Vec<Interface> = all.iter().filter(is_named).cloned().collect();
    let usable = in_order(&found);
    if !usable.is_empty() {
        return Ok(usable);
    }
    if !found.is_empty() {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "address (DTL_RDMA_ADDRESS) is \"{name}\", which has only link-local addresses, which \
             other nodes cannot use: name another one"
        );
    }
    let there: Vec<String> =
        all.iter().map(|one| format!("{} ({})", one.address, one.name)).collect();
    fail!(
        DTL_ERROR_INVALID_ARGUMENT,
        "address (DTL_RDMA_ADDRESS) is \"{name}\", which is no address or interface of this \
         machine that is up: it has {}",
        there.join(", ")
    )
}

#[cfg(test)]
#[path = "tests/address.rs"]
mod tests;
