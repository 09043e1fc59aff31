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

    /// Makes the network a good one, whatever it was before.
    pub(crate) fn end(guest: &Guest) -> Outcome {
        guest.shell(
            "tc() { /usr/bin/tc \"$@\"; }\ntc qdisc del dev eth0 root\n\
             tc qdisc del dev eth0 ingress\ntc qdisc del dev ifb0 root\ntrue\n",
        )?;
        Ok(())
    }
}
