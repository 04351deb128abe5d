//! Addresses on the command line.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// `HOST:PORT`, to connect to. The host is a name, an IPv4 address, or an IPv6 address in brackets.
#[derive(Debug, Clone)]
pub(super) struct HostPort(String);

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for HostPort {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some((host, port)) = text.rsplit_once(':') else {
            return Err("the port is missing; give HOST:PORT");
        };
        if host.is_empty() {
            return Err("the host is missing; give HOST:PORT");
        }
        let in_name = |c: char| c.is_alphanumeric() || "-._".contains(c);
        if host.starts_with('[') {
            if format!("{host}:1").parse::<SocketAddr>().is_err() {
                return Err("the brackets must hold an IPv6 address");
            }
        } else if host.contains("//") {
            return Err("give HOST:PORT, not a URL");
        } else if host.contains(':') {
            return Err("put an IPv6 address in brackets, as in [::1]:7431");
        } else if !host.chars().all(in_name) {
            return Err("the host is neither a name nor an address");
        }
        let is_number = port.bytes().all(|digit| digit.is_ascii_digit());
        match port.parse::<u16>() {
            Ok(1..) if is_number => Ok(Self(text.to_owned())),
            _ => Err(PORT),
        }
    }
}

const PORT: &str = "the port must be from 1 to 65535";

/// An address to connect to. Its port is not 0.
pub(super) fn reachable(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text
        .parse()
        .map_err(|error| format!("{error}; give ADDRESS:PORT, as in 127.0.0.1:7432"))?;
    if address.port() == 0 {
        return Err(PORT.into());
    }
    Ok(address)
}

/// Whether no server can listen on both addresses. The system chooses a free port for port 0.
pub(super) fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    // The unspecified IPv6 address usually takes IPv4 connections, too.
    let covers = |all: SocketAddr, one: SocketAddr| {
        all.ip().is_unspecified() && (all.is_ipv6() || one.is_ipv4())
    };
    a.port() == b.port() && a.port() != 0 && (a.ip() == b.ip() || covers(a, b) || covers(b, a))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn hosts_and_ports() {
        for good in [
            "server.example:7431",
            "my_server:1",
            "localhost:65535",
            "127.0.0.1:7431",
            "[::1]:7431",
            "[fe80::1%2]:7431",
        ] {
            assert_eq!(good.parse::<HostPort>().unwrap().to_string(), good);
        }
        for (wrong, why) in [
            ("host", "port is missing"),
            ("", "port is missing"),
            (":7431", "host is missing"),
            ("host:", "1 to 65535"),
            ("host:0", "1 to 65535"),
            ("host:99999", "1 to 65535"),
            ("host:+80", "1 to 65535"),
            ("host:http", "1 to 65535"),
            ("::1:7431", "brackets"),
            ("[::1]", "brackets"),
            ("[::1:7431", "brackets"),
            ("[host]:7431", "brackets"),
            ("https://host:7431", "URL"),
            ("a host:7431", "neither"),
        ] {
            let error = wrong.parse::<HostPort>().unwrap_err();
            assert!(error.contains(why), "{wrong}: {error}");
        }
    }

    #[test]
    fn addresses_that_overlap() {
        let overlap = |a: &str, b: &str| {
            let [a, b] = [a, b].map(|text| text.parse().unwrap());
            assert_eq!(super::overlap(a, b), super::overlap(b, a));
            super::overlap(a, b)
        };
        assert!(overlap("127.0.0.1:1", "127.0.0.1:1"));
        assert!(overlap("0.0.0.0:1", "127.0.0.1:1"));
        assert!(overlap("[::]:1", "127.0.0.1:1"));
        assert!(overlap("[::]:1", "0.0.0.0:1"));
        assert!(!overlap("0.0.0.0:1", "[::1]:1"));
        assert!(!overlap("127.0.0.1:1", "127.0.0.2:1"));
        assert!(!overlap("127.0.0.1:1", "127.0.0.1:2"));
        assert!(!overlap("127.0.0.1:0", "127.0.0.1:0"));
    }
}
