//! Batches over a bad network, which the guest makes: netem on what it sends, and on what it gets.
//! Only RoCE is meant; the agent's words pass.

use roxe_verbs::Mtu;

use crate::Outcome;
use crate::batch::{Batch, Direction, Family, Op};
use crate::guest::Guest;

/// A bad network: its name, and what netem does to what rxe sends and to what it gets.
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    sent: Option<&'static str>,
    received: Option<&'static str>,
}

const fn fault(
    name: &'static str,
    sent: Option<&'static str>,
    received: Option<&'static str>,
) -> Fault {
    Fault { name, sent, received }
}

/// The one that is soaked in.
pub(crate) const LOSS: &str = "1 % lost both ways";

/// The one that only an ICRC sees.
pub(crate) const DAMAGE: &str = "bits of 1 % wrong both ways";

#[rustfmt::skip]
pub(crate) const FAULTS: &[Fault] = &[
    fault("1 % of rxe's packets lost",   Some("loss 1%"),              None),
    fault("5 % of rxe's packets lost",   Some("loss 5%"),              None),
    fault("1 % of roxe's packets lost",  None,                         Some("loss 1%")),
    fault("5 % of roxe's packets lost",  None,                         Some("loss 5%")),
    fault(LOSS,                          Some("loss 1%"),              Some("loss 1%")),
    fault("5 % doubled both ways",       Some("duplicate 5%"),         Some("duplicate 5%")),
    fault("some reordered both ways",    Some("delay 1ms reorder 95% 50%"), Some("delay 1ms reorder 95% 50%")),
    fault(DAMAGE,                        Some("corrupt 1%"),           Some("corrupt 1%")),
];

/// What is done over each of them.
pub(crate) fn batches() -> impl Iterator<Item = Batch> {
    let ops = [Op::Send, Op::SendImm, Op::Write, Op::Read, Op::FetchAdd, Op::Srq];
    ops.into_iter().flat_map(|op| {
        Direction::ALL.into_iter().map(move |direction| Batch {
            op,
            direction,
            path_mtu: Mtu::B1024,
            family: Family::V4,
        })
    })
}

impl Fault {
    /// Makes the network as bad as this, whatever it was before.
    pub(crate) fn begin(&self, guest: &Guest) -> Outcome {
        Self::end(guest)?;
        let roce = "protocol ip u32 match ip protocol 17 0xff match ip dport 4791 0xffff";
        let mut script = String::from("set -e\ntc() { /usr/bin/tc \"$@\"; }\n");
        if let Some(netem) = self.sent {
            let map = "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0";
            script += &format!(
                "tc qdisc add dev eth0 root handle 1: prio bands 2 priomap {map}\n\
                 tc qdisc add dev eth0 parent 1:2 handle 20: netem limit 100000 {netem}\n\
                 tc filter add dev eth0 parent 1: {roce} flowid 1:2\n"
            );
        }
        if let Some(netem) = self.received {
            script += &format!(
                "/usr/bin/ip link set ifb0 up txqueuelen 20000\n\
                 tc qdisc add dev ifb0 root netem limit 100000 {netem}\n\
                 tc qdisc add dev eth0 handle ffff: ingress\n\
                 tc filter add dev eth0 parent ffff: {roce} \
                 action mirred egress redirect dev ifb0\n"
            );
        }
        guest.shell(&script)?;
        Ok(())
    }

    /// Whether the network was a bad one for something that was sent both ways, as far as it is.
    ///
    /// # Errors
    /// Packets did not go that way.
    pub(crate) fn must_have_met(&self, guest: &Guest) -> Outcome {
        for (netem, interface) in [(self.sent, "eth0"), (self.received, "ifb0")] {
            if netem.is_some() {
                let said = guest.shell(&format!("/usr/bin/tc -s qdisc show dev {interface}"))?;
                if through_netem(&said) == 0 {
                    return Err(format!("netem of {interface} has seen no packet: {said}").into());
                }
            }
        }
        Ok(())
    }

    /// Makes the network a good one, whatever it was before.
    pub(crate) fn end(guest: &Guest) -> Outcome {
        guest.shell(
            "tc() { /usr/bin/tc \"$@\"; }\ntc qdisc del dev eth0 root\n\
             tc qdisc del dev eth0 ingress\ntc qdisc del dev ifb0 root\ntrue\n",
        )?;
        Ok(())
    }
}

/// Packets that came through netem, or were lost there, as `tc -s qdisc` tells it.
fn through_netem(said: &str) -> u64 {
    let netem = said.split_once("qdisc netem ").map_or("", |(_, own)| own);
    let sent = netem.split_once(" pkt ").and_then(|(before, _)| before.rsplit(' ').next());
    let dropped = netem.split_once("(dropped ").and_then(|(_, behind)| behind.split(',').next());
    let number = |word: Option<&str>| word.and_then(|it| it.parse::<u64>().ok());
    number(sent).unwrap_or_default() + number(dropped).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_counted_where_netem_is() {
        let prio = "qdisc prio 1: root refcnt 2 bands 2 priomap 0 0 0\n \
                    Sent 9000 bytes 80 pkt (dropped 3, overlimits 0 requeues 0)\n";
        let netem = |sent: u32, dropped: u32| {
            format!(
                "{prio}qdisc netem 20: parent 1:2 limit 100000 loss 1%\n \
                 Sent 6000 bytes {sent} pkt (dropped {dropped}, overlimits 0 requeues 0)\n \
                 backlog 0b 0p requeues 0\n"
            )
        };
        assert_eq!(through_netem(&netem(41, 2)), 43);
        assert_eq!(through_netem(&netem(0, 0)), 0);
        assert_eq!((through_netem(prio), through_netem("")), (0, 0));
    }
}
