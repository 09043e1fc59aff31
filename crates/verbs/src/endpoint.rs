//! What a peer has to know of a queue pair, as value and as text.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use roxe_wire::{Mtu, Psn, Qpn};

/// What a peer has to know to connect, exchanged out of band.
///
/// As text it is one word, `address=192.0.2.1,qpn=0x12,psn=4711,mtu=4096`. Reading it, numbers may
/// be decimal or `0x…`, the order does not matter, and what has another name is passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The adapter's address.
    pub address: IpAddr,
    /// The queue pair.
    pub qpn: Qpn,
    /// The PSN of its first request.
    pub psn: Psn,
    /// The largest path MTU of its port.
    pub path_mtu: Mtu,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, qpn, psn, path_mtu } = self;
        write!(f, "address={address},qpn={qpn},psn={},mtu={path_mtu}", psn.get())
    }
}

/// Why a text is no [`Endpoint`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Something is missing.
    #[error("endpoint lacks `{0}=`")]
    Missing(&'static str),
    /// Something cannot be read.
    #[error("endpoint has `{name}={value}`, which cannot be read")]
    Value {
        /// What.
        name: &'static str,
        /// What stands there.
        value: String,
    },
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let qpn = value(text, "qpn", number_24)?;
        let psn = value(text, "psn", number_24)?;
        Ok(Self {
            address: value(text, "address", |it| it.parse().ok())?,
            qpn: Qpn::new(qpn),
            psn: Psn::new(psn),
            path_mtu: value(text, "mtu", |it| Mtu::from_bytes(number_24(it)?))?,
        })
    }
}

fn value<T>(
    text: &str,
    name: &'static str,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<T, EndpointError> {
    let mut pairs = text.trim().split(',').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(known, _)| *known == name).ok_or(EndpointError::Missing(name))?;
    read(value).ok_or_else(|| EndpointError::Value { name, value: value.to_owned() })
}

fn number_24(text: &str) -> Option<u32> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.ok().filter(|number| *number < 1 << 24)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_read_as_it_is_written() {
        for address in ["192.0.2.1", "2001:db8::1"] {
            let endpoint = Endpoint {
                address: address.parse().unwrap(),
                qpn: Qpn::new(0x12),
                psn: Psn::new(0xff_ffff),
                path_mtu: Mtu::B2048,
            };
            assert_eq!(endpoint.to_string().parse(), Ok(endpoint));
        }
        let other: Endpoint = "mtu=1024,new=1,psn=0x10,qpn=0x12,address=::1\n".parse().unwrap();
        assert_eq!(other.to_string(), "address=::1,qpn=0x12,psn=16,mtu=1024");
    }

    #[test]
    fn what_is_wrong_with_an_endpoint_is_said() {
        let why = |text: &str| text.parse::<Endpoint>().unwrap_err().to_string();
        assert_eq!(why(""), "endpoint lacks `qpn=`");
        assert_eq!(why("qpn=1,psn=2,mtu=1024"), "endpoint lacks `address=`");
        assert_eq!(why("qpn=16777216"), "endpoint has `qpn=16777216`, which cannot be read");
        assert_eq!(why("qpn=1,psn=-2"), "endpoint has `psn=-2`, which cannot be read");
        let why = why("address=1.2.3.4,qpn=1,psn=2,mtu=1500");
        assert_eq!(why, "endpoint has `mtu=1500`, which cannot be read");
    }
}
